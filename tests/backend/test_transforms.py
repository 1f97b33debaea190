"""Forward-mode derivatives, the transforms of torch.func, and tensors without numbers, on the default backend."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad
from torch.autograd.functional import hessian
from torch.func import functional_call, grad, jacfwd, jvp, vmap
from torch.utils._pytree import tree_leaves, tree_map

from momentum_transformer import (
    Encoder,
    MomentumAttention,
    MomentumResidual,
    RecurrentState,
    linear_attention,
    momentum_attention,
    recurrent_attention,
)
from tests.family import inputs, leaves, needs_native

# PyTorch scripts its decompositions when it first differentiates forwards
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")

B, H, N, D, E = 2, 2, 6, 3, 2
MASK = torch.tensor([[True, True, False, True, True, True], [False, True, True, True, False, False]])


def momentum(mask: Tensor | None, q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> Tensor:
    return momentum_attention(q, k, v, beta=beta, gamma=0.9, key_mask=mask)


def momentum_both_ways(mask: Tensor | None, q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> Tensor:
    return momentum_attention(q, k, v, beta=beta, causal=False, key_mask=mask)


def fixed_momentum(mask: Tensor | None, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return momentum_attention(q, k, v, beta=0.6, key_mask=mask)


def fixed_momentum_both_ways(mask: Tensor | None, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return momentum_attention(q, k, v, beta=0.6, causal=False, key_mask=mask)


def linear(mask: Tensor | None, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return linear_attention(q, k, v, key_mask=mask)


def linear_both_ways(mask: Tensor | None, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return linear_attention(q, k, v, causal=False, key_mask=mask)


def gated_delta(mask: Tensor | None, q: Tensor, k: Tensor, v: Tensor, alpha: Tensor, eta: Tensor) -> Tensor:
    return recurrent_attention(q, k, v, alpha=alpha, eta=eta, delta=alpha, key_mask=mask)


def momentum_delta(mask: Tensor | None, q: Tensor, k: Tensor, v: Tensor, *c: Tensor) -> Tensor:
    alpha, beta, gamma, eta = c
    return recurrent_attention(q, k, v, alpha=alpha, beta=beta, gamma=gamma, eta=eta, delta=alpha, key_mask=mask)


# what each takes besides q, k, v
COEFFICIENTS: dict[Callable[..., Tensor], tuple[tuple[int, ...], ...]] = {
    momentum: ((H,),),
    momentum_both_ways: ((H,),),
    fixed_momentum: (),
    fixed_momentum_both_ways: (),
    linear: (),
    linear_both_ways: (),
    gated_delta: ((B, H, N),) * 2,
    momentum_delta: ((B, H, N),) * 4,
}
every_function = pytest.mark.parametrize("attend", COEFFICIENTS, ids=lambda function: function.__name__)
with_and_without_mask = pytest.mark.parametrize("mask", [None, MASK], ids=["no mask", "mask"])


def arguments(attend: Callable[..., Tensor], *lead: int, seed: int = 0) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    shapes = ((B, H, N, D), (B, H, N, D), (B, H, N, E))
    tokens = [torch.randn(*lead, *shape, generator=generator, dtype=torch.float64) for shape in shapes]
    coefficients = [
        0.1 + 0.8 * torch.rand(*lead, *shape, generator=generator, dtype=torch.float64)
        for shape in COEFFICIENTS[attend]
    ]
    return (*tokens, *coefficients)


def slope(function: Callable[..., Tensor], x: tuple[Tensor, ...], tangents: tuple[Tensor, ...]) -> Tensor:
    """The derivative along `tangents` by finite differences."""
    step = 1e-5
    after, before = (function(*(a + sign * step * b for a, b in zip(x, tangents, strict=True))) for sign in (1, -1))
    return (after - before) / (2 * step)


def gradients(function: Callable[..., Tensor], x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    given = [tensor.detach().clone().requires_grad_() for tensor in x]
    return torch.autograd.grad(function(*given), given)


@with_and_without_mask
@every_function
def test_forward_derivatives_are_slopes(attend: Callable[..., Tensor], mask: Tensor | None) -> None:
    def function(*x: Tensor) -> Tensor:
        return attend(mask, *x)

    x = arguments(attend)
    tangents = tuple(0.1 * tensor for tensor in arguments(attend, seed=1))
    found = jvp(function, x, tangents)[1]
    torch.testing.assert_close(found, slope(function, x, tangents), rtol=1e-6, atol=1e-7)
    with forward_ad.dual_level():
        dual = function(*map(forward_ad.make_dual, x, tangents))
        torch.testing.assert_close(forward_ad.unpack_dual(dual).tangent, found)


@with_and_without_mask
@every_function
def test_vmap_is_a_loop(attend: Callable[..., Tensor], mask: Tensor | None) -> None:
    many = arguments(attend, 3)
    masks = None if mask is None else torch.stack([mask, ~mask, mask.flip(0)])
    found = vmap(attend, in_dims=(None if mask is None else 0, *[0] * len(many)))(masks, *many)
    rows = [attend(None if masks is None else masks[i], *(x[i] for x in many)) for i in range(3)]
    torch.testing.assert_close(found, torch.stack(rows))
    for axis in (0, len(many) - 1):  # one argument alone
        some = [x if i == axis else x[0] for i, x in enumerate(many)]
        found = vmap(attend, in_dims=(None, *(0 if i == axis else None for i in range(len(many)))))(mask, *some)
        torch.testing.assert_close(found[1], attend(mask, *(x[1] if i == axis else x[0] for i, x in enumerate(many))))


@with_and_without_mask
@every_function
def test_vmap_of_grad_is_a_loop(attend: Callable[..., Tensor], mask: Tensor | None) -> None:
    def loss(*x: Tensor) -> Tensor:
        return attend(mask, *x).sin().sum()

    many = arguments(attend, 2)
    found = vmap(grad(loss, tuple(range(len(many)))))(*many)
    rows = [gradients(loss, tuple(x[i] for x in many)) for i in range(2)]
    for a, b in zip(found, zip(*rows, strict=True), strict=True):
        torch.testing.assert_close(a, torch.stack(b))


@every_function
def test_jacobians_forwards_and_backwards_are_the_same(attend: Callable[..., Tensor]) -> None:
    def total(*x: Tensor) -> Tensor:
        return attend(MASK, *x).sum((0, 3))

    x = arguments(attend)
    found = jacfwd(total, tuple(range(len(x))))(*x)
    for a, b in zip(found, torch.autograd.functional.jacobian(total, x), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("tokens", [1, 150])
@pytest.mark.parametrize("member", ["momentum", "gated delta", "momentum delta"])
def test_states_can_be_transformed_at_one_token_and_several_chunks(member: str, tokens: int) -> None:
    given = {name: x.detach() if isinstance(x, Tensor) else x for name, x in inputs(member, tokens).items()}
    _, state = recurrent_attention(**given, return_state=True)
    q, v = given.pop("q"), given.pop("v")

    def attend(q: Tensor, v: Tensor, s: Tensor) -> Tensor:
        y, after = recurrent_attention(q, v=v, **given, state=state._replace(s=s), return_state=True)
        return torch.cat([y.flatten(), after.s.flatten()])

    x = (q, v, state.s)
    tangents = tuple(torch.randn_like(tensor) for tensor in x)
    found = jvp(attend, x, tangents)[1]
    torch.testing.assert_close(found, slope(attend, x, tangents), rtol=1e-5, atol=1e-6)
    several = vmap(attend)(*(torch.stack([a, b]) for a, b in zip(x, tangents, strict=True)))
    torch.testing.assert_close(several, torch.stack([attend(*x), attend(*tangents)]))


def test_values_under_vmap_are_not_looked_at() -> None:
    """A check of values would be one for each of the batch."""
    q, k, v = arguments(fixed_momentum)
    betas = torch.tensor([[0.5, 2.0], [0.1, 0.2]], dtype=torch.float64)
    found = vmap(lambda beta: momentum_attention(q, k, v, beta=beta))(betas)
    torch.testing.assert_close(found[1], momentum_attention(q, k, v, beta=betas[1]))


def test_each_sample_has_its_gradients_by_an_encoder() -> None:
    torch.manual_seed(0)
    model = Encoder(1, 8, 2, attention=MomentumAttention(0.6), residual=MomentumResidual(0.3)).double()
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    x = torch.randn(3, 7, 8, dtype=torch.float64)

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(model, parameters, (x[None],)).square().sum()

    found = vmap(grad(loss), in_dims=(None, 0))(parameters, x)
    wanted = torch.autograd.grad(model(x[1:2]).square().sum(), list(model.parameters()))
    for name, b in zip(parameters, wanted, strict=True):
        torch.testing.assert_close(found[name][1], b)


@needs_native
def test_a_native_backward_pass_can_be_differentiated_forwards() -> None:
    x = [tensor.requires_grad_() for tensor in arguments(momentum)]
    y = momentum_attention(*x[:3], beta=x[3], backend="native")
    dy, tangent = torch.randn(2, *y.shape, dtype=torch.float64)
    wanted = torch.autograd.grad(y, x, tangent, retain_graph=True)  # gradients are linear in dy
    with forward_ad.dual_level():
        found = torch.autograd.grad(y, x, forward_ad.make_dual(dy, tangent))
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(forward_ad.unpack_dual(a).tangent, b)


def test_a_hessian_in_one_batch_is_that_row_by_row() -> None:
    q, k, v = torch.randn(3, 1, 2, 5, 3, dtype=torch.float64)

    def loss(x: Tensor) -> Tensor:
        return linear_attention(x, k, v).square().sum()

    found, wanted = (hessian(loss, q, vectorize=at_once) for at_once in (True, False))
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("tokens", [1, 40])
@pytest.mark.parametrize("kind", ["fake", "meta"])
@pytest.mark.parametrize("member", ["linear", "momentum", "momentum, learned a head", "KDA", "everything"])
def test_shapes_are_known_without_numbers(member: str, kind: str, tokens: int) -> None:
    real = inputs(member, tokens)
    y, state = recurrent_attention(**real, return_state=True)
    mode = FakeTensorMode()

    def without_numbers(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        hollow = mode.from_tensor(x.detach()) if kind == "fake" else x.detach().to("meta")
        return hollow.requires_grad_(x.requires_grad)

    given = tree_map(without_numbers, real)
    before = RecurrentState(*(None if x is None else without_numbers(x.detach()) for x in state))
    mask = without_numbers(torch.ones(2, tokens, dtype=torch.bool))
    with mode if kind == "fake" else torch.device("meta"):
        found = tree_leaves(recurrent_attention(**given, key_mask=mask, state=before, return_state=True))
        first = [x for x in found if x is not None]
        for a, b in zip(first, [x for x in (y, *state) if x is not None], strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
        wanted = list(leaves(given).values())
        for a, b in zip(torch.autograd.grad([x.sum() for x in first], wanted), wanted, strict=True):
            assert (a.shape, a.dtype, a.device) == (b.shape, b.dtype, b.device)
