"""The linear map of layers by oneDNN: the numbers and gradients of PyTorch's own, which serves all the rest."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (the field's name for it)
from torch import Tensor
from torch.func import vmap

from momentum_transformer.backend import products
from momentum_transformer.backend.products import linear, prefers_onednn, product

BOUND = 1e-5  # of the largest number
SHAPES = [((300, 96), 128), ((3, 100, 128), 96), ((2, 3, 70, 64), 257), ((9000, 16), 16)]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """What oneDNN is asked for, on any machine that has it."""
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this PyTorch has no oneDNN")
    asked: list[tuple[int, ...]] = []
    multiplied = products._multiplied

    def counted(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        asked.append(tuple(x.shape))
        return multiplied(x, weight, bias)

    monkeypatch.setattr(products, "prefers_onednn", lambda: True)
    monkeypatch.setattr(products, "_multiplied", counted)
    return asked


def operands(shape: tuple[int, ...], features: int) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    x, weight = torch.randn(shape), torch.randn(features, shape[-1])
    return x.requires_grad_(), weight.requires_grad_(), torch.randn(features, requires_grad=True)


def assert_close(found: Tensor, wanted: Tensor) -> None:
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    assert (found - wanted).abs().max() <= BOUND * wanted.abs().max()


@pytest.mark.parametrize(("shape", "features"), SHAPES)
@pytest.mark.parametrize("biased", [True, False])
def test_outputs_and_gradients_are_those_of_pytorch(
    calls: list[tuple[int, ...]], shape: tuple[int, ...], features: int, biased: bool
) -> None:
    x, weight, bias = operands(shape, features)
    leaves = (x, weight, bias) if biased else (x, weight)
    found, wanted = linear(*leaves), F.linear(*leaves)
    assert_close(found, wanted)
    dy = torch.randn(wanted.shape)
    for ours, theirs in zip(
        torch.autograd.grad(found, leaves, dy), torch.autograd.grad(wanted, leaves, dy), strict=True
    ):
        assert_close(ours, theirs)
    assert len(calls) == 3


def test_an_expanded_gradient_is_the_gradient(calls: list[tuple[int, ...]]) -> None:
    leaves = operands((300, 96), 128)
    found, wanted = (torch.autograd.grad(one(*leaves).sum(), leaves) for one in (linear, F.linear))
    for ours, theirs in zip(found, wanted, strict=True):
        assert_close(ours, theirs)
    assert len(calls) == 3


def test_only_gradients_that_are_wanted_are_made(calls: list[tuple[int, ...]]) -> None:
    x, weight, bias = operands((300, 96), 128)
    (d_bias,) = torch.autograd.grad(linear(x.detach(), weight.detach(), bias).sum(), bias)
    assert d_bias.tolist() == [300.0] * 128
    assert len(calls) == 1


def test_gradients_of_gradients_are_those_of_pytorch(calls: list[tuple[int, ...]]) -> None:
    x, weight, _ = operands((300, 96), 128)

    def second(function: Callable[..., Tensor]) -> tuple[Tensor, ...]:
        (dx,) = torch.autograd.grad(function(x, weight).square().sum(), x, create_graph=True)
        return torch.autograd.grad(dx.square().sum(), (x, weight))

    for ours, theirs in zip(second(linear), second(F.linear), strict=True):
        assert_close(ours, theirs)
    assert len(calls) == 3  # the output, and twice where the second gradient comes back to it


def test_rows_that_do_not_lie_one_after_another_are_read_where_they_are(calls: list[tuple[int, ...]]) -> None:
    x, weight, bias = (one.detach() for one in operands((100, 3, 128), 96))
    assert_close(linear(x.transpose(0, 1), weight, bias), F.linear(x.transpose(0, 1), weight, bias))
    assert_close(linear(x[:, :, ::2], weight[:, ::2], bias), F.linear(x[:, :, ::2], weight[:, ::2], bias))
    assert_close(product(x[:, 0].T, x[:, 1]), x[:, 0].T @ x[:, 1])
    assert calls == [(3, 100, 128)]  # the others are too small


def test_what_is_small_or_not_float32_or_transformed_is_left_to_pytorch(calls: list[tuple[int, ...]]) -> None:
    x, weight, bias = (one.detach() for one in operands((300, 96), 128))
    assert torch.equal(linear(x[:2], weight, bias), F.linear(x[:2], weight, bias))
    wide = [one.double() for one in (x, weight, bias)]
    assert torch.equal(linear(*wide), F.linear(*wide))
    assert torch.equal(vmap(lambda one: linear(one, weight, bias))(x[None])[0], F.linear(x, weight, bias))
    assert linear(x.to("meta"), weight.to("meta")).is_meta
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(x, weight, bias).dtype == torch.bfloat16
    assert not calls


def test_who_switches_onednn_off_is_obeyed(calls: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight, bias = (one.detach() for one in operands((300, 96), 128))
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    assert torch.equal(linear(x, weight, bias), F.linear(x, weight, bias))
    assert not calls


@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")
def test_tangents_are_kept(calls: list[tuple[int, ...]]) -> None:
    x, weight, _ = (one.detach() for one in operands((300, 96), 128))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, x)
        found = torch.autograd.forward_ad.unpack_dual(linear(dual, weight)).tangent
    assert found is not None
    assert_close(found, F.linear(x, weight))
    assert not calls


@pytest.mark.parametrize(
    "shapes", [((300, 96), (128, 95), (128,)), ((300, 96), (128, 96), (127,)), ((300, 96), (1, 128, 96), (128,))]
)
def test_shapes_that_do_not_fit_raise_as_in_pytorch(
    calls: list[tuple[int, ...]], shapes: tuple[tuple[int, ...], ...]
) -> None:
    x, weight, bias = (torch.zeros(shape) for shape in shapes)
    with pytest.raises(RuntimeError):
        linear(x.repeat(100, 1), weight, bias)
    assert not calls


@pytest.mark.parametrize(
    ("vendor", "capability"), [("AuthenticAMD", "AVX512"), ("GenuineIntel", "AVX512"), ("AuthenticAMD", "AVX2")]
)
def test_onednn_serves_processors_of_amd_with_avx512(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, vendor: str, capability: str
) -> None:
    if not (torch.backends.mkldnn.is_available() and torch.backends.mkl.is_available()):
        pytest.skip("this PyTorch has not both libraries")
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nvendor_id\t: {vendor}\n")
    monkeypatch.setattr(products, "CPU_INFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    assert prefers_onednn.__wrapped__() == ((vendor, capability) == ("AuthenticAMD", "AVX512"))
    monkeypatch.setattr(products, "CPU_INFO", tmp_path / "none")
    monkeypatch.setattr("platform.processor", lambda: "")
    assert not prefers_onednn.__wrapped__()
