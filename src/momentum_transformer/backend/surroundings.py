"""What stands around a recurrence: convolution, norm and gate; by native code, or PyTorch where that refuses."""

from ..ops import convolution as in_pytorch
from ..ops.row_norm import row_norm
from ..ops.shapes import Tensor
from ..ops.tracing import transformed
from .cpu.causal_operator import DTYPES, wide_dtype
from .cpu.convolution_operator import MOST_TAPS, Arguments, convolution
from .cpu.native_backend import status
from .cpu.row_norm_operator import normalized


def refusal(*tensors: Tensor | None) -> str | None:
    """Why native code cannot serve tensors like these; the first gives the dtype."""
    x = tensors[0]
    assert x is not None
    if any(one is not None and one.device.type != "cpu" for one in tensors):
        return f"it runs on the CPU, and x is on {x.device}"
    if x.dtype not in DTYPES:
        return f"it knows {', '.join(str(dtype) for dtype in DTYPES)}, not {x.dtype}"
    if x.numel() == 0:
        return "an empty tensor has no rows to point at"
    if transformed():
        return "it knows neither forward-mode derivatives nor the transforms of torch.func"
    return status()


def short_convolution(
    x: Tensor,
    weight: Tensor,
    past: Tensor | None = None,
    *,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    reset: Tensor | None = None,
    silu: bool = False,
) -> tuple[Tensor, Tensor]:
    """Each channel of x (b, n, c) convolved with weight (c, taps); the tokens to go on from (ops/convolution.py)."""
    if not _short(weight) or refusal(x, weight, past, bias, mask, reset) is not None:
        return in_pytorch.short_convolution(x, weight, past, bias=bias, mask=mask, reset=reset, silu=silu)
    past = None if past is None else past.to(x.dtype)
    return _native_convolution(Arguments(x, weight, past, bias, mask, reset, silu, x.shape[2]))


def two_way_convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    turned: int,
    mask: Tensor | None = None,
    reset: Tensor | None = None,
    silu: bool = False,
) -> Tensor:
    """`short_convolution`, but the channels from `turned` on look at the tokens that come after."""
    if not _short(weight) or refusal(x, weight, bias, mask, reset) is not None:
        return in_pytorch.two_way_convolution(x, weight, bias, turned=turned, mask=mask, reset=reset, silu=silu)
    y, _ = _native_convolution(Arguments(x, weight, None, bias, mask, reset, silu, turned))
    return y


def _short(weight: Tensor) -> bool:
    return 2 <= weight.shape[1] <= MOST_TAPS


def _native_convolution(given: Arguments) -> tuple[Tensor, Tensor]:
    x, weight, past, bias, mask, reset, silu, turned = given
    weight, bias = weight.to(wide_dtype(x)), None if bias is None else bias.to(wide_dtype(x))
    return convolution(Arguments(x, weight, past, bias, mask, reset, silu, turned))


def norm_and_gate(
    x: Tensor, weight: Tensor | None, gate: Tensor | None, *, eps: float, gating: str = "sigmoid"
) -> Tensor:
    """RMSNorm(x), rows (b, h, n, d) of x and gate, gated as ops/row_norm.py says."""
    if refusal(x, weight, gate) is not None:
        return row_norm(x, weight, gate, mean=True, eps=eps, gating=gating)
    weight = None if weight is None else weight.to(wide_dtype(x))
    return normalized(x, weight, None if gate is None else gate.to(x.dtype), mean=True, eps=eps, gating=gating)


def unit_rows(x: Tensor, *, scale: float = 1.0, eps: float) -> Tensor:
    """Rows (b, h, n, d) of length `scale`, almost: eps keeps a row of zeros what it is."""
    weight = None if scale == 1 else x.new_full((x.shape[3],), scale, dtype=wide_dtype(x))
    if refusal(x) is not None:
        return row_norm(x, weight, mean=False, eps=eps)
    return normalized(x, weight, None, mean=False, eps=eps)
