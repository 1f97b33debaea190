"""Norms of rows by the native kernels, as an operator of PyTorch with gradients: `momentum::row_norm`.

x and gate are (b, h, n, d) on the CPU, in one of DTYPES; weight is (d,), float32, or float64 like x. The output lies
in memory as the gate does, or as x: behind a mixer that is (b, n, h, d), which the projection out reads without a
copy.
"""

from typing import Any

import torch
from torch import Tensor

from ...ops.feature_maps import L2_EPS, FeatureMap, l2_normalized
from ...ops.row_norm import GATINGS, row_norm
from ...ops.tracing import eager
from .causal_operator import DTYPES, run, wide_dtype
from .higher_derivatives import gradients, natively_differentiable
from .library import RowNorm, TensorView, contiguous_rows, empty_rows, pointer
from .operator_checks import check_no_tangent, check_tensor

NORM_TOKENS = 64  # whose gradients of the weight are summed together; as in native/surroundings.h
TENSORS = 3  # x, weight, gate
OPTIONS = 3  # mean, eps, and the number of the gating in GATINGS
_ARGUMENTS = "Tensor x, Tensor? weight, Tensor? gate, bool mean, float eps, int gating=0"
_library = torch.library.Library("momentum", "FRAGMENT")
_library.define(f"row_norm({_ARGUMENTS}) -> Tensor")
_library.define(f"row_norm_backward(Tensor dy, {_ARGUMENTS}) -> (Tensor dx, Tensor d_weight, Tensor d_gate)")


def _check(x: Tensor, weight: Tensor | None, gate: Tensor | None, gating: int = 0) -> None:
    """The kernels get bare pointers, so everything they rely on is checked here."""
    if not 0 <= gating < len(GATINGS):
        raise ValueError(f"gating must be the number of one of {GATINGS}, not {gating}")
    if x.ndim != 4 or x.dtype not in DTYPES:
        raise ValueError(f"x must be (b, h, n, d) in one of {DTYPES}, not {x.dtype} {tuple(x.shape)}")
    check_tensor("weight", weight, (x.shape[3],), wide_dtype(x))
    check_tensor("gate", gate, tuple(x.shape), x.dtype)


def _problem(x: Tensor, weight: Tensor | None, gate: Tensor | None, mean: bool, eps: float, gating: int) -> RowNorm:
    b, h, n, d = x.shape
    problem = RowNorm(b=b, h=h, n=n, d=d, mean=mean, eps=eps, gating=gating, dtype=DTYPES.index(x.dtype))
    # another thread pays off only if it gets some ten thousand elements
    problem.threads = max(1, min(torch.get_num_threads(), x.numel() // 2**14))
    problem.x, problem.weight = TensorView.of(x), pointer(weight)
    if gate is not None:
        problem.gate = TensorView.of(gate)
    return problem


def forward(x: Tensor, weight: Tensor | None, gate: Tensor | None, mean: bool, eps: float, gating: int = 0) -> Tensor:
    """`momentum::row_norm`."""
    _check(x, weight, gate, gating)
    x, weight, gate = _readable(x, weight, gate)
    problem = _problem(x, weight, gate, mean, eps, gating)
    y = empty_rows(x if gate is None else gate, None)
    problem.y = TensorView.of(y)
    if x.numel():
        run("row_norm", problem, x.dtype)
    return y


def _readable(x: Tensor, weight: Tensor | None, gate: Tensor | None) -> tuple[Tensor, Tensor | None, Tensor | None]:
    weight = None if weight is None else weight.contiguous()
    return contiguous_rows(x), weight, None if gate is None else contiguous_rows(gate)


def backward(
    dy: Tensor, x: Tensor, weight: Tensor | None, gate: Tensor | None, mean: bool, eps: float, gating: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """`momentum::row_norm_backward`; what is not there has an empty gradient."""
    _check(x, weight, gate, gating)
    check_tensor("dy", dy, tuple(x.shape), x.dtype)
    dy, (x, weight, gate) = contiguous_rows(dy), _readable(x, weight, gate)
    problem = _problem(x, weight, gate, mean, eps, gating)
    dx, d_gate = empty_rows(x, None), x.new_empty((0,)) if gate is None else empty_rows(gate, None)
    b, _, n, d = x.shape
    parts = x.new_empty((0,))
    if weight is not None:
        parts = weight.new_zeros((b * ((n + NORM_TOKENS - 1) // NORM_TOKENS), d))
        problem.d_weight = parts.data_ptr()
    problem.dy, problem.dx = TensorView.of(dy), TensorView.of(dx)
    if gate is not None:
        problem.d_gate = TensorView.of(d_gate)
    if x.numel():
        run("row_norm_backward", problem, x.dtype)
    return dx, parts if weight is None else parts.sum(0), d_gate


def _forward(*inputs: Any) -> Tensor:
    check_no_tangent(*inputs[:TENSORS])
    return forward(*inputs)


def _forward_fake(x: Tensor, weight: Tensor | None, gate: Tensor | None, *rest: object) -> Tensor:
    _check(x, weight, gate)
    x, _, gate = _readable(x, None, gate)
    return empty_rows(x if gate is None else gate, None)


def _backward_fake(
    dy: Tensor, x: Tensor, weight: Tensor | None, gate: Tensor | None, *rest: object
) -> tuple[Tensor, Tensor, Tensor]:
    x, _, gate = _readable(x, None, gate)
    d_weight = x.new_empty((0,)) if weight is None else weight.new_empty(weight.shape)
    return empty_rows(x, None), d_weight, x.new_empty((0,)) if gate is None else empty_rows(gate, None)


def normalized(
    x: Tensor, weight: Tensor | None, gate: Tensor | None, *, mean: bool, eps: float, gating: str = "sigmoid"
) -> Tensor:
    """ops/row_norm.py in native code."""
    options = (mean, eps, GATINGS.index(gating))
    if not eager(x, weight, gate):  # as in autograd.py: the dispatcher only where somebody traces the call
        found: Tensor = torch.ops.momentum.row_norm(x, weight, gate, *options)
        return found
    if torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in (x, weight, gate)):
        return _RowNorm.apply(x, weight, gate, *options)
    return forward(x, weight, gate, *options)


def few_rows(x: Tensor, weight: Tensor | None, gate: Tensor | None, *, eps: float, gating: str) -> Tensor:
    """`normalized` by the mean, without gradients, for a few rows (..., d), as one decoded token has.

    The norm of so few rows takes less time than dispatching to an operator, so it calls the kernel directly.
    """
    d, wide, dtype = x.shape[-1], wide_dtype(x), x.dtype
    x, y = x.contiguous(), torch.empty(x.shape, dtype=dtype)
    check_tensor("x", x, tuple(x.shape), dtype)
    if weight is not None:
        weight = weight.to(wide).contiguous()
        check_tensor("weight", weight, (d,), wide)
    if gate is not None:
        gate = gate.to(dtype).contiguous()
        check_tensor("gate", gate, tuple(x.shape), dtype)
    sizes = (1, 1, x.numel() // d, d, True, GATINGS.index(gating), 1, DTYPES.index(dtype), eps)
    views = (TensorView(pointer(one), 0, 0, d) for one in (x, gate, y))
    if x.numel():
        run("row_norm", RowNorm(*sizes, *views, pointer(weight)), dtype)
    return y


def native_map(feature_map: FeatureMap | None) -> FeatureMap | None:
    """The feature map as one native operator, where native code serves the tensors."""
    return _unit_rows if feature_map is l2_normalized else feature_map


def _unit_rows(x: Tensor) -> Tensor:
    return normalized(x, None, None, mean=False, eps=L2_EPS)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    tensors, ctx.options = inputs[:TENSORS], inputs[TENSORS:]
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors)


def _backward(ctx: Any, dy: Tensor | None) -> tuple[Tensor | None, ...]:
    x, weight, gate = ctx.saved_tensors
    if dy is None:
        return (None,) * (TENSORS + OPTIONS)
    if not natively_differentiable():
        mean, eps, gating = ctx.options

        def in_pytorch(x: Tensor, weight: Tensor | None, gate: Tensor | None) -> tuple[Tensor]:
            return (row_norm(x, weight, gate, mean=mean, eps=eps, gating=GATINGS[gating]),)

        found = gradients(in_pytorch, (x, weight, gate), ctx.needs_input_grad[:TENSORS], (dy,))
        return *found, *(None,) * OPTIONS
    call: Any = backward if eager(dy, x, weight, gate) else torch.ops.momentum.row_norm_backward
    dx, d_weight, d_gate = call(dy, x, weight, gate, *ctx.options)
    return dx, None if weight is None else d_weight, None if gate is None else d_gate, *(None,) * OPTIONS


class _RowNorm(torch.autograd.Function):
    """`momentum::row_norm`, bypassing the dispatcher."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        output = forward(*inputs)
        _setup_context(ctx, inputs, output)
        return output

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        return _backward(ctx, *grads)


for _name, _real, _fake in (("row_norm", _forward, _forward_fake), ("row_norm_backward", backward, _backward_fake)):
    _library.impl(_name, _real, "CPU")
    torch.library.register_fake(f"momentum::{_name}", _fake)
torch.library.register_autograd("momentum::row_norm", _backward, setup_context=_setup_context)
