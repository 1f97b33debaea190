"""The equality table: every member of the family, in every form, equals a NumPy loop; gradients equal each other.

The token form is compared with `tests/reference.py`, which shares no code with the library, and every other form with
the token form: outputs, final states, all gradients; odd lengths, masks, resets, states.
"""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from momentum_transformer import RecurrentState, cu_seqlens, recurrent_attention
from momentum_transformer.ops import chunked
from tests import family, reference
from tests.family import HIDDEN, LENGTHS, MEMBERS, NARROW, B, D, E, H, N

from .cases import FORMS, MEMBER_FORMS, assert_all_close, gradients, skipped_if_refused


def some_state(member: str, dtype: torch.dtype = torch.float64) -> RecurrentState:
    """A state that fits a member, and needs gradients."""
    generator = torch.Generator().manual_seed(1)
    row = MEMBERS[member]
    momentum = row.get("beta", 0.0) != 0.0 or "lookahead" in row
    s, m = (torch.randn(B, H, D, E, generator=generator, dtype=torch.float64).to(dtype) for _ in range(2))
    z = torch.rand(B, H, D, generator=generator, dtype=torch.float64).to(dtype)
    return RecurrentState(
        s.requires_grad_(),
        m.requires_grad_() if momentum else None,
        z.requires_grad_() if row.get("normalize") else None,
    )


def everything(given: dict[str, Any], state: RecurrentState | None = None, **options: Any) -> dict[str, Tensor]:
    """Output, final state, and the gradients of all that needs them."""
    y, after = recurrent_attention(**given, state=state, return_state=True, **options)
    found = {"y": y, **{f"final {name}": x for name, x in after._asdict().items() if x is not None}}
    wanted = family.leaves(given) | {
        name: x for name, x in (state or RecurrentState(y))._asdict().items() if state is not None and x is not None
    }
    made = gradients(list(found.values()), list(wanted.values()))
    return found | {f"gradient of {name}": x for name, x in zip(wanted, made, strict=True)}


def assert_equal(found: dict[str, Tensor], wanted: dict[str, Tensor], tolerance: float) -> None:
    assert list(found) == list(wanted)
    assert_all_close(list(found.values()), list(wanted.values()), list(found), tolerance)


def full(value: float | Tensor, *more: int) -> np.ndarray:
    """A coefficient as (b, h, n, ...)."""
    if not isinstance(value, Tensor):
        return np.full((B, H, N, *more), value)
    x = value.detach().double()
    x = x[None, :, None] if x.ndim == 1 else x
    x = x[..., None] if more and x.ndim == 3 else x
    return x.expand(B, H, N, *more).numpy()


@pytest.mark.grid
@pytest.mark.parametrize(("key_heads", "hidden"), [*((H, name) for name in HIDDEN), (2, "no mask"), (1, "holes")])
@pytest.mark.parametrize("member", MEMBERS)
def test_the_token_form_is_the_recurrence_as_it_is_written(member: str, hidden: str, key_heads: int) -> None:
    given, state = family.inputs(member, key_heads=key_heads), some_state(member)
    y, after = recurrent_attention(**given, **HIDDEN[hidden], state=state, return_state=True, backend="recurrent")
    names = {"alpha": 1.0, "beta": 0.0, "gamma": 1.0, "eta": 1.0, "delta": 0.0, "lookahead": 0.0}
    coefficients = {
        name: full(given.get(name, neutral), *([D] * (name == "alpha"))) for name, neutral in names.items()
    }
    wanted, *ends = reference.recurrent(
        *(given[name] for name in ("q", "k", "v")),
        **coefficients,
        erase=given.get("erase"),
        mask=HIDDEN[hidden].get("key_mask"),
        reset=HIDDEN[hidden].get("reset"),
        normalize=given.get("normalize", False),
        state=state,
    )
    assert_all_close([y], [wanted], ["y"], 1e-12)
    for name, found, end in zip(after._fields, after, ends, strict=True):
        assert (found is None) == (getattr(state, name) is None)
        if found is not None:
            assert_all_close([found], [torch.from_numpy(end)], [name], 1e-12)


@pytest.mark.grid
@pytest.mark.parametrize("with_state", [False, True], ids=["from nothing", "from a state"])
@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize("form", MEMBER_FORMS)
@pytest.mark.parametrize("member", MEMBERS)
def test_forms_agree_in_outputs_states_and_gradients(member: str, form: str, hidden: str, with_state: bool) -> None:
    state = some_state(member) if with_state else None
    with skipped_if_refused(form):
        found = everything(family.inputs(member), state, **HIDDEN[hidden], **FORMS[form])
    wanted = everything(family.inputs(member), state, **HIDDEN[hidden], backend="recurrent")
    assert_equal(found, wanted, 1e-12)


@pytest.mark.grid
@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("member", MEMBERS)
def test_any_length_works(member: str, n: int) -> None:
    state = some_state(member)
    found = everything(family.inputs(member, n), state, backend="chunked")
    assert_equal(found, everything(family.inputs(member, n), state, backend="recurrent"), 1e-12)


@pytest.mark.parametrize("member", ["momentum", "momentum a token", "KDA", "everything"])
def test_chunks_that_are_computed_again_give_the_same_gradients(member: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked, "MOST_KEPT", 0)
    found = everything(family.inputs(member, 150), some_state(member), backend="chunked")
    wanted = everything(family.inputs(member, 150), some_state(member), backend="recurrent")
    assert_equal(found, wanted, 1e-12)


@pytest.mark.parametrize("member", MEMBERS)
def test_float32_agrees_to_a_hundred_thousandth(member: str) -> None:
    """Values, states and gradients, against float64."""
    single = family.inputs(member, 70, dtype=torch.float32)
    double = {name: x.detach().double().requires_grad_() if isinstance(x, Tensor) else x for name, x in single.items()}
    for backend in ("chunked", "recurrent"):
        assert_equal(everything(single, backend=backend), everything(double, backend="recurrent"), 1e-5)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("member", MEMBERS)
def test_narrow_inputs_are_computed_in_float32(member: str, dtype: torch.dtype) -> None:
    given = family.inputs(member, dtype=dtype)
    wide = {name: x.float() if isinstance(x, Tensor) else x for name, x in given.items()}
    y, after = recurrent_attention(**given, return_state=True)
    wanted = recurrent_attention(**wide)
    assert y.dtype == dtype
    assert all(x is None or x.dtype == torch.float32 for x in after)
    assert_all_close([y], [wanted.to(dtype)], ["y"], 1e-6)


@pytest.mark.grid
@pytest.mark.parametrize("cuts", [[1], [16, 17], [5, 5, 30]], ids=str)
@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize("member", MEMBERS)
def test_cutting_anywhere_and_carrying_the_state_changes_nothing(member: str, hidden: str, cuts: list[int]) -> None:
    given, options = family.inputs(member), HIDDEN[hidden]

    def piece(x: Any, start: int, stop: int) -> Any:
        if not isinstance(x, Tensor) or x.ndim == 1:
            return x
        return x[:, start:stop] if x.dtype == torch.bool else x[:, :, start:stop]

    whole, end = recurrent_attention(**given, **options, return_state=True)
    state, pieces = None, []
    for start, stop in itertools.pairwise([0, *cuts, N]):
        part = {name: piece(x, start, stop) for name, x in (given | options).items()}
        y, state = recurrent_attention(**part, state=state, return_state=True)
        pieces.append(y)
    assert state is not None
    for name, a, b in zip(("y", *end._fields), (torch.cat(pieces, 2), *state), (whole, *end), strict=True):
        if b is not None:
            assert_all_close([a], [b], [name], 1e-11)


@pytest.mark.parametrize("member", MEMBERS)
def test_first_and_second_derivatives_are_right(member: str) -> None:
    given = family.inputs(member, 6)
    names = list(family.leaves(given))

    def function(*tensors: Tensor) -> tuple[Tensor, ...]:
        changed = given | dict(zip(names, tensors, strict=True))
        y, state = recurrent_attention(**changed, return_state=True, backend="chunked")
        return y, *(x for x in state if x is not None)

    interior = [
        # a finite difference steps to both sides of a coefficient, which must stay in its range
        (x.detach() * 0.98 + 0.01 if name in ("alpha", "beta") else x.detach()).requires_grad_()
        for name, x in family.leaves(given).items()
    ]
    assert torch.autograd.gradcheck(function, interior, fast_mode=True)
    assert torch.autograd.gradgradcheck(function, interior, fast_mode=True)


@pytest.mark.parametrize("member", MEMBERS)
def test_a_document_does_not_feel_those_before_it(member: str) -> None:
    """Packed documents give what each gives alone, bit for bit in value and gradient of the others."""
    given = family.inputs(member)
    reset = cu_seqlens(torch.tensor([0, 9, 9, 20, N])).expand(B, N)
    y = recurrent_attention(**given, reset=reset)
    alone = {name: x[:, :, 20:] if isinstance(x, Tensor) and x.ndim > 1 else x for name, x in given.items()}
    assert_all_close([y[:, :, 20:]], [recurrent_attention(**alone)], ["last document"], 1e-12)
    reached = torch.autograd.grad(y[:, :, 20:].sum(), given["v"])[0]
    assert not reached[:, :, :20].any()
    assert reached[:, :, 20:].any()


@pytest.mark.grid
@pytest.mark.parametrize("form", [{"backend": "chunked"}, {"backend": "recurrent"}], ids=str)
@pytest.mark.parametrize("member", MEMBERS)
def test_garbage_under_the_mask_changes_neither_output_nor_gradient(member: str, form: dict[str, Any]) -> None:
    mask = HIDDEN["holes"]["key_mask"]
    clean, dirty = family.inputs(member), family.inputs(member)
    for name, x in family.leaves(dirty).items():
        if x.ndim > 1:
            hole = ~mask[:, None, :, None] if x.ndim == 4 else ~mask[:, None, :]
            dirty[name] = x.detach().masked_fill(hole, torch.nan).requires_grad_()
    assert_equal(everything(dirty, key_mask=mask, **form), everything(clean, key_mask=mask, **form), 1e-12)


def test_deltaproduct_is_several_tokens_a_token() -> None:
    """Two delta steps a token: queries and decay belong to the last and the first of them."""
    given = family.inputs("gated delta", 2 * 9)
    q, k, v, eta, alpha = (given[name].detach() for name in ("q", "k", "v", "eta", "alpha"))
    alpha = torch.where(torch.arange(18) % 2 == 0, alpha, 1)
    y = recurrent_attention(q, k, v, alpha=alpha, eta=eta, delta=alpha)[:, :, 1::2]
    s = torch.zeros(B, H, D, E, dtype=torch.float64)
    for t in range(9):
        s = alpha[:, :, 2 * t, None, None] * s
        for i in (2 * t, 2 * t + 1):
            key, strength = k[:, :, i, :, None], eta[:, :, i, None, None]
            s = s - strength * key @ (key.mT @ s) + strength * key @ v[:, :, i, None, :]
        assert_all_close([y[:, :, t]], [(q[:, :, 2 * t + 1, None] @ s).squeeze(-2)], [f"token {t}"], 1e-12)


def test_equal_keys_at_full_strength_stay_exact() -> None:
    """The hardest system: all pairs alike, eigenvalues at -1."""
    k = torch.nn.functional.normalize(torch.ones(1, 1, 64, 8, dtype=torch.float64), dim=-1)
    v = torch.randn(1, 1, 64, 8, dtype=torch.float64)
    found, wanted = (recurrent_attention(k, k, v, eta=2.0, delta=1.0, backend=x) for x in ("chunked", "recurrent"))
    assert_all_close([found], [wanted], ["y"], 1e-12)


@pytest.mark.parametrize("log_beta", [-0.01, -0.5, -2.3, -29.0])
def test_weights_neither_underflow_nor_cancel_in_float32(log_beta: float) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, 128, 16, generator=generator, dtype=torch.float64) for _ in range(3))
    k = torch.nn.functional.normalize(k, dim=-1)
    beta = (log_beta * 2 * torch.rand(1, 2, 128, generator=generator, dtype=torch.float64)).exp()
    options = {"beta": beta, "eta": 0.5, "delta": 1.0, "alpha": 0.9}
    exact = recurrent_attention(q, k, v, **options, backend="recurrent")
    narrow = {name: x.float() if isinstance(x, Tensor) else x for name, x in options.items()}
    found = recurrent_attention(q.float(), k.float(), v.float(), **narrow, backend="chunked")
    assert ((found - exact).norm() / exact.norm()).item() < 3e-6


def test_features_may_be_wider_than_keys() -> None:
    """Then so are an alpha for each channel, and erase."""
    given = family.inputs("KDA")
    q, k, v, eta = (given[name].detach() for name in ("q", "k", "v", "eta"))

    def both_signs(x: Tensor) -> Tensor:
        return torch.cat([x.relu(), (-x).relu()], -1)

    alpha = torch.rand(B, H, N, 2 * D, dtype=torch.float64)
    options = {"alpha": alpha, "eta": eta, "delta": 1.0, "erase": alpha * both_signs(k)}
    found = recurrent_attention(q, k, v, **options, feature_map=both_signs)
    wanted = recurrent_attention(both_signs(q), both_signs(k), v, **options, backend="recurrent")
    assert_all_close([found], [wanted], ["y"], 1e-12)
    with pytest.raises(ValueError, match="erase must have the shape of the features of k"):
        recurrent_attention(q, k, v, delta=1.0, erase=k, feature_map=both_signs)
