"""Attention without causal order in native code equals the PyTorch form, outputs and gradients."""

from typing import Any

import pytest
import torch
from torch import Tensor

from momentum_transformer import linear_attention, momentum_attention
from momentum_transformer.backend.cpu import bidirectional_operator, causal_operator
from tests.family import TOLERANCE, needs_native

pytestmark = needs_native
BETAS = (None, 0.0, 0.6, 0.999, torch.tensor([0.1, 0.5, 0.9, 0.99]))
SHAPES = [
    (2, 4, 17, 33, 5, 7),
    (2, 4, 40, 40, 32, 32),
    (1, 4, 100, 3, 64, 48),
    (3, 4, 1, 9, 16, 16),
    (2, 4, 300, 300, 48, 48),
]
LONG = (1, 2, 2500, 1100, 8, 9)  # in pieces


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which native kernels were called."""
    seen: list[str] = []
    real = causal_operator.run

    def watched(which: str, *rest: Any) -> None:
        seen.append(which)
        real(which, *rest)

    monkeypatch.setattr(bidirectional_operator, "run", watched)
    return seen


def tensors(shape: tuple[int, ...], dtype: torch.dtype, *, beside: bool = False) -> list[Tensor]:
    """q, k, v of (b, h, n, m, d, e); with `beside`, heads lie beside each other as they come from a projection."""
    b, h, n, m, d, e = shape
    generator = torch.Generator().manual_seed(sum(shape))
    sizes = ((n, d), (m, d), (m, e))
    if beside:
        return [torch.randn(b, length, h, w, generator=generator).to(dtype).transpose(1, 2) for length, w in sizes]
    return [torch.randn(b, h, length, w, generator=generator).to(dtype) for length, w in sizes]


def attend(q: Tensor, k: Tensor, v: Tensor, *c: Any, **options: Any) -> Tensor:
    """Linear attention without coefficients, momentum attention with."""
    if not c:
        return linear_attention(q, k, v, causal=False, **options)
    return momentum_attention(q, k, v, beta=c[0], gamma=c[1], causal=False, **options)


def coefficients(beta: Any) -> tuple[Any, ...]:
    if isinstance(beta, Tensor):
        return beta.double(), torch.full_like(beta, 0.7).double()
    return () if beta is None else (beta, 0.7)


def results(q: Tensor, k: Tensor, v: Tensor, beta: Any = 0.6, **options: Any) -> list[Tensor]:
    """y, and the gradients of q, k, v, and of β and γ where there is one of each a head."""
    given = [x.detach().requires_grad_() if isinstance(x, Tensor) else x for x in (q, k, v, *coefficients(beta))]
    y = attend(*given, **options)
    weights = torch.linspace(-1, 1, y.numel(), dtype=torch.float64).view_as(y)
    leaves = [x for x in given if isinstance(x, Tensor)]
    return [y.detach(), *torch.autograd.grad((y.double() * weights).sum(), leaves)]


def both(q: Tensor, k: Tensor, v: Tensor, beta: Any = 0.6, **options: Any) -> tuple[list[Tensor], list[Tensor]]:
    """By native code, and by PyTorch."""
    return results(q, k, v, beta, **options), results(q, k, v, beta, backend="chunked", **options)


def assert_same(found: list[Tensor], wanted: list[Tensor]) -> None:
    for i, (a, b) in enumerate(zip(found, wanted, strict=True)):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        error = (a.double() - b.double()).abs().max()
        # β and γ are float64 always: their gradients are as exact as y is
        tolerance = TOLERANCE[found[0].dtype]
        assert error <= tolerance * (1 + b.double().abs().max()), f"result {i} is off by {error:.2e}"


@pytest.mark.grid
@pytest.mark.kernels
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("beta", BETAS, ids=str)
@pytest.mark.parametrize("shape", [*SHAPES, LONG], ids=str)
def test_it_equals_the_pytorch_form(shape: tuple[int, ...], beta: Any, dtype: torch.dtype, calls: list[str]) -> None:
    beta = beta[: shape[1]] if isinstance(beta, Tensor) else beta
    for beside in (False, True):
        q, k, v = tensors(shape, dtype, beside=beside)
        generator = torch.Generator().manual_seed(0)
        key_mask = torch.rand(k.shape[0], k.shape[2], generator=generator) > 0.3
        query_mask = torch.rand(q.shape[0], q.shape[2], generator=generator) > 0.3
        key_mask[0, 0], key_mask[-1] = True, shape[0] == 1  # no key at all, where there are other rows
        for masks in ({}, {"key_mask": key_mask}, {"key_mask": key_mask, "query_mask": query_mask}):
            assert_same(*both(q, k, v, beta, **masks))
    assert calls == ["bidirectional", "bidirectional_backward"] * 6


@pytest.mark.parametrize("beta", BETAS, ids=str)
def test_whoever_wants_no_gradients_gets_the_same_bits(beta: Any, calls: list[str]) -> None:
    for dtype in TOLERANCE:
        q, k, v = tensors(SHAPES[0], dtype)
        mask = torch.rand(2, 33) > 0.3
        with torch.no_grad():
            y = attend(q, k, v, *coefficients(beta), key_mask=mask)
        assert torch.equal(y, results(q, k, v, beta, key_mask=mask)[0])
    assert len(calls) == 3 * len(TOLERANCE)


@pytest.mark.kernels
@pytest.mark.parametrize(
    "options",
    [{"normalize": False}, {"eps": 0.1}, {"feature_map": None}, {"feature_map": lambda x: torch.relu(x) + 0.1}],
    ids=["not normalized", "eps", "features", "feature map"],
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_it_knows_the_options(options: dict[str, Any], dtype: torch.dtype, calls: list[str]) -> None:
    q, k, v = (x.abs() for x in tensors(SHAPES[0], dtype))
    mask = torch.rand(2, 33) > 0.3
    assert_same(*both(q, k, v, key_mask=mask, **options))
    assert calls == ["bidirectional", "bidirectional_backward"]


@pytest.mark.usefixtures("instruction_set")
def test_every_instruction_set_gives_the_same() -> None:
    betas = torch.tensor([0.1, 0.5, 0.9, 0.99])
    for dtype in TOLERANCE:
        for shape in (SHAPES[0], SHAPES[-1], LONG):
            for beside in (False, True):
                q, k, v = tensors(shape, dtype, beside=beside)
                assert_same(*both(q, k, v, betas[: shape[1]]))


@pytest.mark.parametrize("which", ["q", "k", "v", "beta", "gamma"])
def test_whoever_wants_gradients_gets_them(which: str, calls: list[str]) -> None:
    given = dict(zip("qkv", tensors(SHAPES[0], torch.float64), strict=True))
    given |= {"beta": torch.full((4,), 0.5), "gamma": torch.full((4,), 0.7)}
    given[which].requires_grad_()
    found = []
    for backend in ("auto", "chunked"):
        loss = momentum_attention(**given, causal=False, backend=backend).square().sum()
        found.append(torch.autograd.grad(loss, given[which])[0])
    torch.testing.assert_close(*found)
    assert calls == ["bidirectional", "bidirectional_backward"]


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("masked", [True, False])
def test_gradients_can_be_differentiated_again(masked: bool, normalize: bool, calls: list[str]) -> None:
    q, k, v = (x.requires_grad_() for x in tensors((1, 2, 3, 4, 2, 2), torch.float64))
    c = [torch.tensor([0.3, 0.6], dtype=torch.float64, requires_grad=True) for _ in range(2)]
    mask = torch.tensor([[True, False, True, True]]) if masked else None

    def function(*x: Tensor) -> Tensor:
        return attend(*x, key_mask=mask, normalize=normalize)

    assert torch.autograd.gradcheck(function, (q, k, v, *c))
    assert torch.autograd.gradgradcheck(function, (q, k, v, *c))
    assert "bidirectional_backward" in calls


@pytest.mark.kernels
def test_rows_that_overlap_are_read_as_they_are(calls: list[str]) -> None:
    q, k = torch.randn(1, 2, 20).unfold(-1, 16, 1), torch.randn(1, 2, 9, 16)
    assert_same(*both(q, k, k))
    assert_same(*both(q.contiguous(), k.expand(3, 2, 9, 16)[:1], k.flip(-1)))
    assert_same(*both(k[:, :1].expand(3, 2, 9, 16), k.expand(3, 2, 9, 16), torch.randn(3, 2, 16, 9).transpose(2, 3)))
    assert calls.count("bidirectional_backward") == 3


def test_transforms_and_traces_leave_nothing_behind(calls: list[str]) -> None:
    x = torch.randn(1, 2, 20, 4)

    def loss(x: Tensor) -> Tensor:
        return momentum_attention(x, x, x, beta=0.4321, causal=False).square().sum()

    by_func = torch.func.grad(loss)(x)
    assert not calls
    assert_same(*both(x, x, x, 0.4321))  # with what was kept, if anything was
    leaf = x.clone().requires_grad_()
    torch.testing.assert_close(by_func, torch.autograd.grad(loss(leaf), leaf)[0])


@pytest.mark.filterwarnings("ignore")  # tracing is old, and warns of every shape that is looked at
@pytest.mark.parametrize("causal", [False, True])
def test_a_trace_can_be_used_with_other_numbers(causal: bool) -> None:
    q, k, v, other = (torch.randn(1, 2, 20, 8) for _ in range(4))
    with torch.no_grad():
        traced = torch.jit.trace(lambda q: linear_attention(q, k, v, causal=causal), q, check_trace=False)
        torch.testing.assert_close(traced(other), linear_attention(other, k, v, causal=causal))


def test_inference_mode_is_no_different(calls: list[str]) -> None:
    q, k, v = tensors(SHAPES[1], torch.float32)
    with torch.inference_mode():
        found = momentum_attention(q, k, v, beta=0.6, gamma=0.7, causal=False)
    assert torch.equal(found, results(q, k, v)[0])
    assert calls == ["bidirectional", "bidirectional", "bidirectional_backward"]


def test_another_backend_is_pytorch(calls: list[str]) -> None:
    q, k, v = tensors(SHAPES[0], torch.float64)
    for backend in ("chunked", "quadratic", "recurrent"):
        results(q, k, v, backend=backend)
    assert not calls


@pytest.mark.kernels
def test_what_does_not_exist_is_never_looked_at() -> None:
    q, k, v = tensors((2, 3, 8, 12, 16, 16), torch.float32)
    mask = torch.arange(12) < torch.tensor([[12], [0]])
    k[1], v[1], q[0, :, 5:] = torch.nan, torch.inf, torch.nan
    beta = torch.tensor([0.1, 0.5, 0.9])
    found = results(q, k, v, beta, key_mask=mask, query_mask=(torch.arange(8) < 5).expand(2, 8))
    assert all(x.isfinite().all() for x in found)
    y, dq, dk, dv, *_ = found
    assert not y[1].any()  # no key, no output
    assert not any(x[0, :, 5:].any() for x in (y, dq))
    assert not any(x[1].any() for x in (dk, dv))
    assert all(x.all() for x in (y[0, :, :5], dq[0, :, :5], dk[0], dv[0]))


@pytest.mark.kernels
@pytest.mark.parametrize(
    "shape", [(3, 4, 200, 150, 24, 24), LONG, (1, 1, 100, 5000, 8, 8), (1, 1, 5000, 100, 8, 8)], ids=str
)
@pytest.mark.parametrize("masked", [False, True])
def test_the_number_of_threads_changes_no_bit(masked: bool, shape: tuple[int, ...]) -> None:
    q, k, v = tensors(shape, torch.float32)
    options = {"key_mask": torch.rand(k.shape[0], k.shape[2]) > 0.3} if masked else {}
    beta = torch.linspace(0.1, 0.9, shape[1])
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            found.append(results(q, k, v, beta, **options))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True))


def test_long_sums_lose_no_digits() -> None:
    q, k, v = tensors((1, 2, 100, 2**17, 8, 8), torch.float64)
    exact, found = results(q, k, v + 0.5), results(q.float(), k.float(), v.float() + 0.5)
    for a, b in zip(found[:1] + found[2:], exact[:1] + exact[2:], strict=True):
        assert float((a - b).norm() / b.norm()) < 1e-6


def test_operators_called_with_what_does_not_fit_raise() -> None:
    q, k, v = tensors((2, 3, 8, 12, 16, 10), torch.float32)
    options = (True, True, 1e-6)
    weights, key_mask, query_mask = torch.ones(3, 13), torch.ones(2, 12).bool(), torch.ones(2, 8).bool()
    forward, backward = torch.ops.momentum.bidirectional, torch.ops.momentum.bidirectional_backward
    outputs = forward(q, k, v, weights, key_mask, query_mask, *options)
    wrong: list[tuple[int, Tensor]] = [
        (0, q[:1]),
        (0, q[0]),
        (0, q.double()),
        (0, q.int()),
        (0, q[:, :, :0]),
        (1, k[..., :15]),
        (1, k[:, :, :11]),
        (2, v[:, :2]),
        (2, v.half()),
        (3, torch.ones(3, 12)),
        (3, torch.ones(2, 13)),
        (3, torch.ones(13)),
        (3, weights.double()),
        (4, torch.ones(2, 11).bool()),
        (4, torch.ones(2, 12)),
        (5, torch.ones(2, 9).bool()),
    ]
    good = [q, k, v, weights, key_mask, query_mask]
    for place, tensor in wrong:
        given = [*good[:place], tensor, *good[place + 1 :]]
        with pytest.raises(ValueError, match=r"must be|must have"):
            forward(*given, *options)
        with pytest.raises(ValueError, match=r"must be|must have"):
            backward(outputs[0], *given[:4], *outputs, *given[4:], *options, True)
    for place, tensor in enumerate(outputs):
        for other in (tensor[:1], tensor.to(torch.float16)):
            changed = [*outputs[:place], other, *outputs[place + 1 :]]
            with pytest.raises(ValueError, match="must be"):
                backward(outputs[0], *good[:4], *changed, *good[4:], *options, True)
    with pytest.raises(ValueError, match="dy must be"):
        backward(outputs[0][..., :9], *good[:4], *outputs, *good[4:], *options, True)
    with pytest.raises(ValueError, match="learned must be False"):
        backward(outputs[0], *good[:3], None, *outputs, *good[4:], *options, True)


@pytest.mark.kernels
@pytest.mark.parametrize(
    "shape", [(0, 2, 3, 4, 5, 6), (2, 2, 0, 4, 5, 6), (2, 2, 3, 0, 5, 6), (2, 2, 3, 4, 5, 0)], ids=str
)
def test_nothing_in_is_nothing_out(shape: tuple[int, ...]) -> None:
    q, k, v = tensors(shape, torch.float32)
    y = momentum_attention(q, k, v, beta=0.6, causal=False)
    assert y.shape == (*shape[:3], shape[5])
    assert not y.any()
