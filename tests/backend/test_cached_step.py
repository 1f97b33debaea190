"""One token on a cache, in native code: what a loop over its definition gives, on odd shapes."""

import pytest
import torch
from torch import Tensor

from momentum_transformer.backend.cpu.cached_step_operator import convolution_step, state_step
from tests.family import needs_native

pytestmark = needs_native
DTYPES = [(torch.float64, 1e-12), (torch.float32, 1e-5)]


def random(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.kernels
@pytest.mark.parametrize(("dtype", "bound"), DTYPES)
@pytest.mark.parametrize(("channels", "taps", "kept"), [(1, 2, 1), (37, 4, 4), (70, 3, 2)])
def test_a_token_is_convolved_and_kept(
    channels: int, taps: int, kept: int, dtype: torch.dtype, bound: float, instruction_set: str
) -> None:
    x, cache = random(3, channels, dtype=dtype), random(3, channels, kept, dtype=dtype)
    weight, bias = random(channels, taps, dtype=dtype), random(channels, dtype=dtype)
    seen = torch.cat([cache, x[..., None]], 2)
    y = convolution_step(x, cache, weight, bias, silu=True)
    torch.testing.assert_close(cache, seen[..., 1:], rtol=0, atol=0)
    expected = torch.nn.functional.silu((seen[..., -taps:] * weight).sum(2) + bias)
    torch.testing.assert_close(y, expected, rtol=bound, atol=bound)


@pytest.mark.kernels
@pytest.mark.parametrize(("dtype", "bound"), DTYPES)
@pytest.mark.parametrize(("h", "g", "e", "s"), [(1, 1, 1, 1), (6, 3, 20, 35), (4, 1, 7, 70)])
def test_a_token_is_written_into_a_state_and_read(
    h: int, g: int, e: int, s: int, dtype: torch.dtype, bound: float, instruction_set: str
) -> None:
    state, x = random(2, h, e, s, dtype=dtype), random(2, h, e, dtype=dtype)
    k, q = random(2, g, s, dtype=dtype), random(2, g, s + 1, dtype=dtype)[..., 1:]
    dt, rate, skip = random(2, h, dtype=dtype).abs(), -random(h, dtype=dtype).abs(), random(h, dtype=dtype)
    of_heads = [one.repeat_interleave(h // g, 1)[:, :, None] for one in (k, q)]
    after = state * (rate * dt).exp()[..., None, None] + (dt[..., None] * x)[..., None] * of_heads[0]
    expected = (after * of_heads[1]).sum(3) + skip[:, None] * x
    y = state_step(state, x, k, q, dt, rate, dt_bias=None, skip=skip, softplus=False)
    torch.testing.assert_close(state, after, rtol=bound, atol=bound)
    torch.testing.assert_close(y, expected, rtol=bound, atol=10 * bound)


def test_what_is_no_block_of_memory_is_refused() -> None:
    def write(state: Tensor, device: str = "cpu") -> None:
        of_heads, keys = torch.ones(2, 3, device=device), torch.ones(2, 1, 5, device=device)
        x = torch.ones(2, 3, 4, device=device)
        state_step(state, x, keys, keys, of_heads, of_heads[0], dt_bias=None, skip=None, softplus=False)

    freed = torch.zeros(2, 3, 4, 5)
    freed.untyped_storage().resize_(0)
    with pytest.raises(ValueError, match="state must be contiguous"):
        write(torch.zeros(1, 1, 1, 1).expand(2, 3, 4, 5))
    with pytest.raises(ValueError, match="has no memory"):
        write(freed)
    with pytest.raises(ValueError, match="x must be contiguous and on the CPU, not meta"):
        write(torch.zeros(2, 3, 4, 5, device="meta"), "meta")
    cache, weight = torch.zeros(2, 3, 4), torch.ones(3, 4)
    with pytest.raises(ValueError, match="cache must be contiguous"):
        convolution_step(torch.ones(2, 3), cache[:1].expand(2, 3, 4), weight, None, silu=True)
    with pytest.raises(ValueError, match="not meta"):
        convolution_step(torch.ones(2, 3, device="meta"), cache.to("meta"), weight.to("meta"), None, silu=True)
