"""One token on Transformers' caches: native code and PyTorch change them alike."""

from typing import Any

import pytest
import torch

pytest.importorskip("transformers", reason="the extra hf is not installed", minversion="5")

from momentum_transformer.backend.cpu.cached_step_operator import convolution_step, state_step
from momentum_transformer.backend.cpu.row_norm_operator import few_rows
from momentum_transformer.hf import causal_conv1d as convolution
from momentum_transformer.hf import scalar_decay
from momentum_transformer.hf.causal_conv1d import causal_conv1d_update
from momentum_transformer.hf.scalar_decay import selective_state_update
from momentum_transformer.ops.row_norm import GATINGS, row_norm
from tests.family import needs_native

from .test_accelerate import distance

pytestmark = needs_native
TOKEN_DTYPES = [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 2e-2)]


@pytest.mark.parametrize(("dtype", "near"), TOKEN_DTYPES)
@pytest.mark.parametrize("activation", ["silu", None, "gelu"])
@torch.no_grad()
def test_one_convolved_token_is_the_same_in_native_code_and_pytorch(
    dtype: torch.dtype, near: float, activation: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = torch.Generator().manual_seed(0)
    x, weight, bias = (torch.randn(*shape, generator=noise).to(dtype) for shape in ((2, 37, 1), (37, 4), (37,)))
    native = torch.randn(2, 37, 4, generator=noise).to(dtype)
    plain = native.clone()
    y = causal_conv1d_update(x, native, weight, bias, activation)
    monkeypatch.setattr(convolution, "serves", lambda *_: False)
    expected = causal_conv1d_update(x, plain, weight, bias, activation)
    assert torch.equal(native, plain)
    assert y.dtype == expected.dtype == dtype
    assert distance(y.double(), expected.double()) < near


@pytest.mark.parametrize(("dtype", "near"), TOKEN_DTYPES)
@pytest.mark.parametrize("softplus", [False, True])
@torch.no_grad()
def test_one_token_of_a_scalar_decay_is_the_same_in_native_code_and_pytorch(
    dtype: torch.dtype, near: float, softplus: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = torch.Generator().manual_seed(0)
    b, h, g, p, s = 2, 6, 3, 20, 35
    x, k, q = (torch.randn(*shape, generator=noise).to(dtype) for shape in ((b, h, p), (b, g, s), (b, g, s)))
    dt = torch.rand(b, h, generator=noise).to(dtype)[..., None].expand(b, h, p)
    rate = -torch.rand(h, generator=noise)[:, None, None].expand(h, p, s)
    skip, bias = (torch.randn(h, generator=noise).to(dtype)[:, None].expand(h, p) for _ in range(2))
    native = torch.randn(b, h, p, s, generator=noise).to(dtype)
    plain = native.clone()
    given: dict[str, Any] = {"D": skip, "dt_bias": bias, "dt_softplus": softplus, "z": x}
    y = selective_state_update(native, x, dt, rate, k, q, **given)
    monkeypatch.setattr(scalar_decay, "serves", lambda *_: False)
    expected = selective_state_update(plain, x, dt, rate, k, q, **given)
    assert y.dtype == expected.dtype == dtype
    assert distance(native.double(), plain.double()) < near
    assert distance(y.double(), expected.double()) < near


@pytest.mark.parametrize(("dtype", "near"), TOKEN_DTYPES)
@pytest.mark.parametrize("gating", GATINGS)
@pytest.mark.parametrize("gated", [False, True])
@torch.no_grad()
def test_a_few_rows_are_normed_as_many_are(dtype: torch.dtype, near: float, gating: str, gated: bool) -> None:
    noise = torch.Generator().manual_seed(0)
    x, weight, gate = (torch.randn(*shape, generator=noise).to(dtype) for shape in ((2, 1, 37), (37,), (2, 1, 40)))
    opened = gate[..., 2:39] if gated else None
    y = few_rows(x, weight, opened, eps=1e-5, gating=gating)
    rows = [None if one is None else one[:, None].double() for one in (x, opened)]
    expected = row_norm(rows[0], weight.double(), rows[1], mean=True, eps=1e-5, gating=gating)[:, 0]
    assert y.dtype == dtype
    assert distance(y.double(), expected) < near


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"x": (2, 6, 19)}, "x must be"),
        ({"q": (2, 3, 36)}, "q must be"),
        ({"k": (2, 4, 35)}, "do not fit"),
        ({"dt": (2, 5)}, "dt must be"),
        ({"rate": (5,)}, "rate must be"),
    ],
    ids=["x", "q", "k", "dt", "rate"],
)
def test_a_native_token_of_wrong_shapes_is_refused(change: dict[str, tuple[int, ...]], reason: str) -> None:
    shapes = {"state": (2, 6, 20, 35), "x": (2, 6, 20), "k": (2, 3, 35), "q": (2, 3, 35), "dt": (2, 6), "rate": (6,)}
    tensors = {name: torch.randn(shape) for name, shape in (shapes | change).items()}
    with pytest.raises(ValueError, match=reason):
        state_step(**tensors, dt_bias=None, skip=None, softplus=False)
    with pytest.raises(ValueError, match="do not fit a cache"):
        convolution_step(torch.randn(2, 5), torch.randn(2, 5, 2), torch.randn(5, 4), None, silu=False)
