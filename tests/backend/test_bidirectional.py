"""Attention without causal order in native code equals the PyTorch form, which serves whoever wants gradients."""

from typing import Any

import pytest
import torch
from torch import Tensor

from momentum_transformer import linear_attention, momentum_attention
from momentum_transformer.backend.cpu import bidirectional_call
from momentum_transformer.backend.cpu.library import Missing, native

pytestmark = pytest.mark.skipif(isinstance(native(), Missing), reason=f"native kernels: {native()}")
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-6, torch.bfloat16: 2e-2, torch.float16: 2e-3}
BETAS = (None, 0.0, 0.6, 0.999, torch.tensor([0.1, 0.5, 0.9, 0.99]))
SHAPES = [
    (2, 4, 17, 33, 5, 7),
    (2, 4, 40, 40, 32, 32),
    (1, 4, 100, 3, 64, 48),
    (3, 4, 1, 9, 16, 16),
    (2, 4, 300, 300, 48, 48),
]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """What the native form was called with."""
    seen: list[Tensor] = []
    real = bidirectional_call.forward

    def watched(q: Tensor, *rest: Any, **options: Any) -> Tensor:
        seen.append(q)
        return real(q, *rest, **options)

    monkeypatch.setattr(bidirectional_call, "forward", watched)
    return seen


def tensors(shape: tuple[int, ...], dtype: torch.dtype, *, beside: bool = False) -> list[Tensor]:
    """q, k, v of (b, h, n, m, d, e); with `beside`, heads lie beside each other as they come from a projection."""
    b, h, n, m, d, e = shape
    generator = torch.Generator().manual_seed(sum(shape))
    sizes = ((n, d), (m, d), (m, e))
    if beside:
        return [torch.randn(b, length, h, w, generator=generator).to(dtype).transpose(1, 2) for length, w in sizes]
    return [torch.randn(b, h, length, w, generator=generator).to(dtype) for length, w in sizes]


def both(q: Tensor, k: Tensor, v: Tensor, beta: Any = 0.6, **options: Any) -> tuple[Tensor, Tensor]:
    """Without gradients, and with."""

    def attend(q: Tensor) -> Tensor:
        if beta is None:
            return linear_attention(q, k, v, causal=False, **options)
        return momentum_attention(q, k, v, beta=beta, gamma=0.7, causal=False, **options)

    with torch.no_grad():
        found = attend(q)
    return found, attend(q.detach().requires_grad_()).detach()


def assert_same(found: Tensor, wanted: Tensor) -> None:
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    error = (found.double() - wanted.double()).abs().max()
    assert error <= TOLERANCE[found.dtype] * (1 + wanted.double().abs().max()), f"off by {error:.2e}"


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("beta", BETAS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_it_equals_the_pytorch_form(
    shape: tuple[int, ...], beta: Any, dtype: torch.dtype, calls: list[Tensor]
) -> None:
    for beside in (False, True):
        q, k, v = tensors(shape, dtype, beside=beside)
        generator = torch.Generator().manual_seed(0)
        key_mask = torch.rand(k.shape[0], k.shape[2], generator=generator) > 0.3
        query_mask = torch.rand(q.shape[0], q.shape[2], generator=generator) > 0.3
        for masks in ({}, {"key_mask": key_mask}, {"key_mask": key_mask, "query_mask": query_mask}):
            assert_same(*both(q, k, v, beta, **masks))
    assert len(calls) == 6  # once without gradients, never with


@pytest.mark.parametrize("options", [{"normalize": False}, {"eps": 0.1}, {"feature_map": None}], ids=str)
def test_it_knows_the_options(options: dict[str, Any], calls: list[Tensor]) -> None:
    q, k, v = (x.abs() for x in tensors(SHAPES[0], torch.float64))
    assert_same(*both(q, k, v, **options))
    assert len(calls) == 1


@pytest.mark.usefixtures("instruction_set")
def test_every_instruction_set_gives_the_same() -> None:
    for dtype in TOLERANCE:
        for shape in (SHAPES[0], SHAPES[-1]):
            assert_same(*both(*tensors(shape, dtype)))


@pytest.mark.parametrize("which", ["q", "k", "v", "beta", "gamma"])
def test_whoever_wants_gradients_gets_them(which: str, calls: list[Tensor]) -> None:
    given = dict(zip("qkv", tensors(SHAPES[0], torch.float64), strict=True))
    given |= {"beta": torch.full((4,), 0.5), "gamma": torch.full((4,), 0.7)}
    given[which].requires_grad_()
    momentum_attention(**given, causal=False).square().sum().backward()
    gradient = given[which].grad
    assert gradient is not None
    assert gradient.any()
    assert not calls


def test_rows_that_overlap_are_read_as_they_are(calls: list[Tensor]) -> None:
    q, k = torch.randn(1, 2, 20).unfold(-1, 16, 1), torch.randn(1, 2, 9, 16)
    assert_same(*both(q, k, k))
    assert_same(*both(q.contiguous(), k.expand(3, 2, 9, 16)[:1], k.flip(-1)))
    assert len(calls) == 2


def test_transforms_and_traces_leave_nothing_behind(calls: list[Tensor]) -> None:
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


def test_inference_mode_is_no_different(calls: list[Tensor]) -> None:
    q, k, v = tensors(SHAPES[1], torch.float32)
    with torch.inference_mode():
        found = momentum_attention(q, k, v, beta=0.6, gamma=0.7, causal=False)
    assert torch.equal(found, both(q, k, v)[0])
    assert len(calls) == 2


def test_another_backend_is_pytorch(calls: list[Tensor]) -> None:
    q, k, v = tensors(SHAPES[0], torch.float64)
    for backend in ("chunked", "quadratic", "recurrent"):
        assert_same(momentum_attention(q, k, v, beta=0.6, gamma=0.7, causal=False, backend=backend), both(q, k, v)[1])
    assert len(calls) == 3  # those of `both`


def test_what_does_not_exist_is_never_looked_at() -> None:
    q, k, v = tensors((2, 3, 8, 12, 16, 16), torch.float32)
    mask = torch.arange(12) < torch.tensor([[12], [0]])
    k[1], v[1], q[0, :, 5:] = torch.nan, torch.inf, torch.nan
    y = momentum_attention(
        q, k, v, beta=0.6, causal=False, key_mask=mask, query_mask=(torch.arange(8) < 5).expand(2, 8)
    )
    assert y.isfinite().all()
    assert not y[1].any()  # no key, no output
    assert not y[0, :, 5:].any()
    assert y[0, :, :5].all()


def test_the_number_of_threads_changes_no_bit_of_the_native_form() -> None:
    q, k, v = tensors((3, 4, 200, 150, 24, 24), torch.float32)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(momentum_attention(q, k, v, beta=0.6, causal=False))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(found[0], other) for other in found[1:])


@pytest.mark.parametrize(
    "shape", [(0, 2, 3, 4, 5, 6), (2, 2, 0, 4, 5, 6), (2, 2, 3, 0, 5, 6), (2, 2, 3, 4, 5, 0)], ids=str
)
def test_nothing_in_is_nothing_out(shape: tuple[int, ...]) -> None:
    q, k, v = tensors(shape, torch.float32)
    y = momentum_attention(q, k, v, beta=0.6, causal=False)
    assert y.shape == (*shape[:3], shape[5])
    assert not y.any()
