"""A short convolution by the native kernels, as an operator of PyTorch with gradients: `momentum::short_convolution`.

x is (b, n, c) on the CPU, in one of DTYPES; weight is (c, taps) and bias (c,), float32, or float64 like x; past is
(b, taps - 1, c) like x; mask and reset are (b, n) of bool. Channels from `turned` on go from the last token to the
first; with such channels there are no tokens before or after.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...ops.convolution import short_convolution, two_way_convolution
from ...ops.tracing import eager
from .causal_operator import DTYPES, run, wide_dtype
from .higher_derivatives import gradients, natively_differentiable
from .library import LineConvolution, TensorView, contiguous_rows, pointer
from .operator_checks import check_no_tangent, check_tensor

MOST_TAPS = 8
TENSORS = 4  # x, weight, past, bias: what may need gradients
_ARGUMENTS = "Tensor x, Tensor weight, Tensor? past, Tensor? bias, Tensor? mask, Tensor? reset, bool silu, int turned"
_library = torch.library.Library("momentum", "FRAGMENT")
_library.define(f"short_convolution({_ARGUMENTS}) -> (Tensor y, Tensor after)")
_library.define(
    f"short_convolution_backward(Tensor dy, Tensor? d_after, {_ARGUMENTS}) -> "
    "(Tensor dx, Tensor d_weight, Tensor d_past, Tensor d_bias)"
)


class Arguments(NamedTuple):
    """The arguments of the operator, in its order."""

    x: Tensor  # (b, n, c)
    weight: Tensor  # (c, taps)
    past: Tensor | None  # (b, taps - 1, c)
    bias: Tensor | None  # (c,)
    mask: Tensor | None  # (b, n)
    reset: Tensor | None  # (b, n)
    silu: bool
    turned: int  # channels from here on look at the tokens that come after


def _checked(*arguments: Any) -> Arguments:
    """The kernels get bare pointers, so everything they rely on is checked here."""
    given = Arguments(*arguments)
    x, weight, past, bias, mask, reset, _, turned = given
    if x.ndim != 3 or x.dtype not in DTYPES:
        raise ValueError(f"x must be (b, n, c) in one of {DTYPES}, not {x.dtype} {tuple(x.shape)}")
    b, n, c = x.shape
    if weight.ndim != 2 or weight.shape[0] != c or not 2 <= weight.shape[1] <= MOST_TAPS:
        raise ValueError(f"weight must be ({c}, 2 to {MOST_TAPS}), not {tuple(weight.shape)}")
    if weight.dtype != wide_dtype(x):
        raise ValueError(f"weight must be {wide_dtype(x)}, not {weight.dtype}")
    check_tensor("past", past, (b, weight.shape[1] - 1, c), x.dtype)
    check_tensor("bias", bias, (c,), wide_dtype(x))
    check_tensor("mask", mask, (b, n), torch.bool)
    check_tensor("reset", reset, (b, n), torch.bool)
    if not 0 <= turned <= c:
        raise ValueError(f"turned must be 0 to {c}, not {turned}")
    if past is not None and turned < c:
        raise ValueError("channels that go from the last token to the first have no past")
    return given


def _lines(x: Tensor) -> TensorView:
    """A (b, n, c) tensor whose last axis is contiguous."""
    b, n, _ = x.stride()
    return TensorView(pointer(x), b, 0, n)


def _problem(
    x: Tensor, weight: Tensor, rest: tuple[Tensor | None, ...], *, silu: bool, turned: int
) -> LineConvolution:
    """The kernel's arguments, for an x with contiguous rows and other tensors that are contiguous."""
    b, n, c = x.shape
    past, bias, mask, reset = rest
    problem = LineConvolution(b=b, n=n, c=c, taps=weight.shape[1], silu=silu, turned=turned)
    # another thread pays off only if it gets some ten thousand elements
    problem.threads = max(1, min(torch.get_num_threads(), x.numel() // 2**14))
    problem.dtype, problem.x, problem.weight = DTYPES.index(x.dtype), _lines(x), pointer(weight)
    problem.past, problem.bias = pointer(past), pointer(bias)
    problem.mask, problem.reset = pointer(mask), pointer(reset)
    return problem


def _new_lines(x: Tensor, mask: Tensor | None) -> Tensor:
    """Kernels do not write masked rows."""
    return x.new_empty(x.shape) if mask is None else x.new_zeros(x.shape)


def forward(*arguments: Any) -> tuple[Tensor, Tensor]:
    """`momentum::short_convolution`, of `Arguments`."""
    x, weight, past, bias, mask, reset, silu, turned = _checked(*arguments)
    x, weight = contiguous_rows(x), weight.contiguous()
    rest = tuple(None if one is None else one.contiguous() for one in (past, bias, mask, reset))
    problem = _problem(x, weight, rest, silu=silu, turned=turned)
    y, after = _new_lines(x, mask), _new_after(x, weight, turned)
    problem.y = _lines(y)
    problem.after = after.data_ptr() if after.numel() else None
    if x.numel():
        run("convolution", problem, x.dtype)
    elif past is not None and after.numel():
        after.copy_(past)
    else:
        after.zero_()
    return y, after


def _new_after(x: Tensor, weight: Tensor, turned: int) -> Tensor:
    b, _, c = x.shape
    return x.new_empty((b, weight.shape[1] - 1, c) if turned == c else (0,))


def backward(dy: Tensor, d_after: Tensor | None, *arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`momentum::short_convolution_backward`; what is not there has an empty gradient."""
    x, weight, past, bias, mask, reset, silu, turned = _checked(*arguments)
    b, _, c = x.shape
    taps = weight.shape[1]
    check_tensor("dy", dy, tuple(x.shape), x.dtype)
    check_tensor("d_after", d_after, (b, taps - 1, c) if turned == c else (0,), x.dtype)
    x, dy, weight = contiguous_rows(x), contiguous_rows(dy), weight.contiguous()
    d_after, *rest = (None if one is None else one.contiguous() for one in (d_after, past, bias, mask, reset))
    problem = _problem(x, weight, tuple(rest), silu=silu, turned=turned)
    dx, d_weight = _new_lines(x, mask), torch.empty_like(weight)
    d_past, d_bias = x.new_empty((0,) if past is None else past.shape), weight.new_empty((0 if bias is None else c,))
    parts = weight.new_empty((b, taps + 1, c))
    problem.dy, problem.dx = _lines(dy), _lines(dx)
    problem.d_parts, problem.d_weight = parts.data_ptr(), d_weight.data_ptr()
    problem.d_past = None if past is None else d_past.data_ptr()
    problem.d_bias = None if bias is None else d_bias.data_ptr()
    problem.d_after = d_after.data_ptr() if d_after is not None and d_after.numel() else None
    if x.numel():
        run("convolution_backward", problem, x.dtype)
    else:
        d_weight.zero_()
        d_bias.zero_()
        d_past.zero_() if past is None or d_after is None else d_past.copy_(d_after)
    return dx, d_weight, d_past, d_bias


def _forward(*arguments: Any) -> tuple[Tensor, Tensor]:
    check_no_tangent(*arguments[:TENSORS])
    return forward(*arguments)


def _forward_fake(*arguments: Any) -> tuple[Tensor, Tensor]:
    given = _checked(*arguments)
    return given.x.new_empty(given.x.shape), _new_after(given.x, given.weight, given.turned)


def _backward_fake(dy: Tensor, d_after: Tensor | None, *arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    x, weight, past, bias, *_ = Arguments(*arguments)
    d_past, d_bias = (
        x.new_empty((0,) if past is None else past.shape),
        weight.new_empty(bias.shape if bias is not None else (0,)),
    )
    return x.new_empty(x.shape), weight.new_empty(weight.shape), d_past, d_bias


def convolution(given: Arguments) -> tuple[Tensor, Tensor]:
    """y and the tokens to go on from."""
    x, weight, past, bias, mask, reset, _, _ = given
    if not eager(x, weight, past, bias, mask, reset):  # as in autograd.py: the dispatcher only where somebody traces
        found: tuple[Tensor, Tensor] = torch.ops.momentum.short_convolution(*given)
        return found
    if torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in (x, weight, past, bias)):
        return _Convolution.apply(*given)
    return forward(*given)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, silu, turned = inputs
    ctx.options = silu, turned
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors)


def _backward(ctx: Any, dy: Tensor | None, d_after: Tensor | None) -> tuple[Tensor | None, ...]:
    x, weight, past, bias, mask, reset = ctx.saved_tensors
    nothing = (None,) * 4
    if dy is None and d_after is None:
        return (None,) * TENSORS + nothing
    if not natively_differentiable():
        silu, turned = ctx.options

        def in_pytorch(x: Tensor, weight: Tensor, past: Tensor | None, bias: Tensor | None) -> tuple[Tensor, Tensor]:
            if turned < x.shape[2]:
                y = two_way_convolution(x, weight, bias, turned=turned, mask=mask, reset=reset, silu=silu)
                return y, x.new_empty((0,))
            return short_convolution(x, weight, past, bias=bias, mask=mask, reset=reset, silu=silu)

        needed = ctx.needs_input_grad[:TENSORS]
        return *gradients(in_pytorch, (x, weight, past, bias), needed, (dy, d_after)), *nothing
    if dy is None:
        dy = torch.zeros_like(x)
    native = eager(dy, d_after, x, weight, past, bias)
    call: Any = backward if native else torch.ops.momentum.short_convolution_backward
    dx, d_weight, d_past, d_bias = call(dy, d_after, x, weight, past, bias, mask, reset, *ctx.options)
    return dx, d_weight, None if past is None else d_past, None if bias is None else d_bias, *nothing


class _Convolution(torch.autograd.Function):
    """`momentum::short_convolution`, bypassing the dispatcher."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
        output = forward(*inputs)
        _setup_context(ctx, inputs, output)
        return output

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        return _backward(ctx, *grads)


for _name, _real, _fake in (
    ("short_convolution", _forward, _forward_fake),
    ("short_convolution_backward", backward, _backward_fake),
):
    _library.impl(_name, _real, "CPU")
    torch.library.register_fake(f"momentum::{_name}", _fake)
torch.library.register_autograd("momentum::short_convolution", _backward, setup_context=_setup_context)
