"""What is proven: every form, mask and state gives the same outputs, final states and gradients.

The root of the proof is `tests/reference.py`, which shares no code with the library. The recurrence is compared
with it, and every other form with the recurrence: float64, odd lengths, all gradients.
"""

import pytest
import torch

from momentum_transformer import linear_attention, momentum_attention
from tests import reference
from tests.family import LENGTHS, masks

from .cases import BETA, FORMS, GAMMA, Inputs, assert_all_close, attend, gradients, inputs, skipped_if_refused

NAMES = ("y", "final m", "final s", "final z", *(f"gradient of {name}" for name in Inputs._fields))


def everything(x: Inputs, *, with_state: bool, **options: object) -> list[torch.Tensor]:
    """Output, final state, and the gradients of all inputs."""
    found = attend(x, with_state=with_state, **options)
    return [*found, *gradients(found, x)]


@pytest.mark.parametrize("mask", masks())
def test_recurrence_is_the_papers_equation(mask: str) -> None:
    x = inputs()
    y = momentum_attention(x.q, x.k, x.v, beta=x.beta, gamma=x.gamma, key_mask=masks()[mask], backend="recurrent")
    expected = reference.causal(x.q, x.k, x.v, beta=BETA, gamma=GAMMA, mask=masks()[mask])
    assert_all_close([y], [expected], ["y"], 1e-13)


@pytest.mark.grid
@pytest.mark.parametrize("with_state", [False, True], ids=["from nothing", "from a state"])
@pytest.mark.parametrize("mask", masks())
@pytest.mark.parametrize("form", FORMS)
def test_form_equals_recurrence_outputs_states_and_gradients(form: str, mask: str, with_state: bool) -> None:
    with skipped_if_refused(form):
        given = everything(inputs(), with_state=with_state, key_mask=masks()[mask], **FORMS[form])
    wanted = everything(inputs(), with_state=with_state, key_mask=masks()[mask], backend="recurrent")
    assert_all_close(given, wanted, NAMES, 1e-12)


@pytest.mark.grid
@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("form", FORMS)
def test_any_length_works_in_every_form(form: str, n: int) -> None:
    with skipped_if_refused(form):
        given = everything(inputs(n), with_state=True, **FORMS[form])
    wanted = everything(inputs(n), with_state=True, backend="recurrent")
    assert_all_close(given, wanted, NAMES, 1e-12)


@pytest.mark.parametrize("mask", masks())
@pytest.mark.parametrize("form", FORMS)
def test_linear_attention_is_momentum_attention_at_beta_zero(form: str, mask: str) -> None:
    x = inputs()
    options = {"key_mask": masks()[mask], "return_state": True} | FORMS[form]
    with skipped_if_refused(form):
        y, state = linear_attention(x.q, x.k, x.v, state=x.state, **options)
    given = [y, *state, *gradients([y, *state], [x.q, x.k, x.v, x.s, x.z])]
    y, momentum = momentum_attention(
        x.q,
        x.k,
        x.v,
        beta=0.0,
        gamma=1.0,
        state=x.state,
        key_mask=masks()[mask],
        return_state=True,
        backend="recurrent",
    )
    kept = [y, momentum.s, momentum.z]
    wanted = [*kept, *gradients(kept, [x.q, x.k, x.v, x.s, x.z])]
    assert_all_close(given, wanted, ["y", "s", "z", "dq", "dk", "dv", "ds", "dz"], 1e-12)


@pytest.mark.parametrize("mask", masks())
@pytest.mark.parametrize("normalize", [True, False])
def test_bidirectional_is_the_papers_equation_with_true_lengths(mask: str, normalize: bool) -> None:
    x = inputs()
    key_mask = masks()[mask]
    options = {"beta": x.beta, "gamma": x.gamma, "causal": False, "key_mask": key_mask}
    y = momentum_attention(x.q, x.k, x.v, normalize=normalize, **options)
    expected = reference.bidirectional(x.q, x.k, x.v, beta=BETA, gamma=GAMMA, mask=key_mask)
    if not normalize:
        keys = reference.phi(x.k.detach().numpy()) * (1 if key_mask is None else key_mask[:, None, :, None].numpy())
        denominator = torch.from_numpy(reference.phi(x.q.detach().numpy()) @ keys.sum(2)[..., None])
        expected = expected * (denominator + 1e-6)
    if key_mask is not None:
        expected = torch.where(key_mask[:, None, :, None], expected, 0)
    assert_all_close([y], [expected], ["y"], 1e-12)


@pytest.mark.parametrize("m", [0, 1, 50])
def test_bidirectional_cross_attention_takes_any_number_of_keys(m: int) -> None:
    x, other = inputs(), inputs(m, seed=3)
    key_mask = torch.rand(2, m) > 0.3
    y = momentum_attention(x.q, other.k, other.v, beta=x.beta, gamma=x.gamma, causal=False, key_mask=key_mask)
    expected = reference.bidirectional(x.q, other.k, other.v, beta=BETA, gamma=GAMMA, mask=key_mask)
    assert_all_close([y], [expected], ["y"], 1e-12)


def test_bidirectional_gradients_equal_those_of_the_last_causal_query() -> None:
    """Eq. 14 is eq. 13 seen from the end: the last query of a causal sequence sees the same weights."""
    x = inputs()
    options = {"beta": x.beta, "gamma": x.gamma}
    causal = momentum_attention(x.q, x.k, x.v, **options)[:, :, -1]
    last = momentum_attention(x.q[:, :, -1:], x.k, x.v, causal=False, **options)[:, :, 0]
    wanted = (x.q, x.k, x.v, x.beta, x.gamma)
    assert_all_close(
        [last, *gradients([last], wanted)],
        [causal, *gradients([causal], wanted)],
        ["y", "dq", "dk", "dv", "dbeta", "dgamma"],
        1e-12,
    )


@pytest.mark.parametrize("form", ["chunks of 8", "auto"])
@pytest.mark.parametrize("mask", ["no mask", "holes"])
def test_first_and_second_derivatives_are_right(form: str, mask: str) -> None:
    one = {name: getattr(inputs(9), name)[:1].detach().requires_grad_() for name in ("q", "k", "v", "m", "s", "z")}
    x = inputs(9)._replace(**one)
    key_mask = masks(9)[mask]
    # beta moves to both sides of its value in a finite difference, so it starts above zero
    x = x._replace(beta=torch.tensor([0.01, 0.6, 0.99], dtype=torch.float64, requires_grad=True))

    def function(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first = None if key_mask is None else key_mask[:1]
        return tuple(attend(Inputs(*tensors), key_mask=first, **FORMS[form]))

    assert torch.autograd.gradcheck(function, tuple(x), fast_mode=True)
    assert torch.autograd.gradgradcheck(function, tuple(x), fast_mode=True)


def test_gradient_of_beta_at_zero_is_the_one_sided_slope() -> None:
    x = inputs()
    h = 1e-6
    zero = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    y = momentum_attention(x.q, x.k, x.v, beta=zero)
    (slope,) = torch.autograd.grad(y.sum(), zero)
    above = momentum_attention(x.q, x.k, x.v, beta=h).sum((0, 2, 3))
    at = momentum_attention(x.q, x.k, x.v, beta=0.0).sum((0, 2, 3))
    assert torch.allclose(slope, (above - at) / h, rtol=1e-4)
