"""The native backend of attention without causal order; its higher derivatives are those of the PyTorch form."""

from dataclasses import dataclass
from typing import Any

import torch

from ...ops.feature_maps import elu_plus_one
from ...ops.shapes import Tensor
from ...ops.state import RecurrentState
from ...ops.tracing import eager, has_tangent
from ..call import Call
from ..pytorch import distance_weights, unknown_to_the_paper, without_causal_order
from . import bidirectional_operator
from .native_backend import refused_by_all

TENSORS = 4  # q, k, v, distance_weights: what may need gradients


@dataclass(frozen=True)
class NativeBidirectional:
    """Linear and momentum attention without causal order, in compiled code."""

    name: str = "native"

    def refusal(self, call: Call) -> str | None:
        if call.causal:
            return "it has no causal order"
        if call.q.numel() == 0 or call.v.numel() == 0:
            return "an empty tensor has no rows to point at"
        return unknown_to_the_paper(call) or refused_by_all(call)

    def run(self, call: Call) -> tuple[Tensor, RecurrentState | None]:
        x = call if call.elu or call.feature_map is None else call.features()
        y = bidirectional(
            (x.q, x.k, x.v, distance_weights(x, x.k.shape[2])),
            (x.key_mask, x.query_mask, x.elu, x.normalize, x.eps),
            needs_gradients=x.needs_gradients(),
        )
        return y.to(call.q.dtype), None


NATIVE_BIDIRECTIONAL = NativeBidirectional()


def bidirectional(tensors: tuple[Tensor | None, ...], options: tuple[Any, ...], *, needs_gradients: bool) -> Tensor:
    """y of `momentum::bidirectional`."""
    # the dispatcher adds overhead to every call: bypass it where nothing traces or intercepts the call
    if not eager(*tensors):
        output = torch.ops.momentum.bidirectional(*tensors, *options)
    elif needs_gradients:
        output = _Bidirectional.apply(*tensors, options)
    else:
        output = bidirectional_operator.forward(*tensors, *options, keep=False)  # type: ignore[arg-type, misc]
    y: Tensor = output[0]
    return y


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    q, k, v, weights, key_mask, query_mask, *options = inputs
    ctx.options = tuple(options)
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(q, k, v, weights, key_mask, query_mask, *output)


def _backward(ctx: Any, dy: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
    q, k, v, weights, key_mask, query_mask, *outputs = ctx.saved_tensors
    nothing = (None,) * 5
    if dy is None:
        return (None,) * TENSORS + nothing
    if torch.is_grad_enabled() or has_tangent(dy):
        return *_differentiable(ctx, dy), *nothing
    learned = ctx.needs_input_grad[3]
    call: Any = bidirectional_operator.backward if eager(dy, q, k, v) else torch.ops.momentum.bidirectional_backward
    dq, dk, dv, d_weights = call(dy, q, k, v, weights, *outputs, key_mask, query_mask, *ctx.options, learned)
    if not learned:
        return dq, dk, dv, None, *nothing
    return dq, dk, dv, d_weights.sum(0) if weights.shape[0] > 1 else d_weights.sum((0, 1))[None], *nothing


class _Bidirectional(torch.autograd.Function):
    """`momentum::bidirectional`, bypassing the dispatcher."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, ...]:
        inputs = (*inputs[:-1], *inputs[-1])
        output = bidirectional_operator.forward(*inputs)
        _setup_context(ctx, inputs, output)
        return output

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        return *_backward(ctx, *grads)[:TENSORS], None


def _differentiable(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    """The same gradients by the PyTorch form, which can be differentiated again, or forwards."""
    again = torch.is_grad_enabled()
    elu, normalize, eps = ctx.options
    key_mask, query_mask = ctx.saved_tensors[TENSORS : TENSORS + 2]
    with torch.enable_grad():
        # views, so that each is differentiated by itself: q, k, v may be one tensor, or one be made from another
        inputs = [None if x is None else x.view_as(x) for x in ctx.saved_tensors[:TENSORS]]
        q, k, v, weights = inputs
        assert q is not None
        assert k is not None
        assert v is not None
        call = Call(
            q,
            k,
            v,
            feature_map=elu_plus_one if elu else None,
            causal=False,
            key_mask=key_mask,
            query_mask=query_mask,
            normalize=normalize,
            eps=eps,
        )
        y = without_causal_order(call, weights)
    wanted = [x is not None and needed for x, needed in zip(inputs, ctx.needs_input_grad, strict=False)]
    differentiated = [x for x, needed in zip(inputs, wanted, strict=True) if x is not None and needed]
    found = iter(torch.autograd.grad(y, differentiated, dy, create_graph=again, allow_unused=True))
    return tuple(next(found) if needed else None for needed in wanted)


torch.library.register_autograd("momentum::bidirectional", _backward, setup_context=_setup_context)
