"""Gradients of the native causal attention: by native kernels, or by the chunked form for higher derivatives."""

from functools import partial
from typing import Any

import torch

from ...ops.coefficients import Coefficients
from ...ops.shapes import Tensor
from ...ops.tracing import eager, has_tangent
from . import causal_operator, recurrent_autograd
from .higher_derivatives import gradients

TENSORS = 7  # q, k, v, s, z, beta, gamma: what may need gradients


def causal(
    tensors: tuple[Tensor | None, ...], options: tuple[Any, ...], *, needs_gradients: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """y and the planes and z of the state after the last token, of `momentum::causal`."""
    # the dispatcher adds overhead to every call: bypass it where nothing traces or intercepts the call
    if not eager(*tensors):
        output = torch.ops.momentum.causal(*tensors, *options)
    elif needs_gradients:
        output = _Causal.apply(*tensors, options)
    else:
        output = causal_operator.forward(*tensors, *options, keep=False)  # type: ignore[arg-type, misc]
    y, _, _, s_after, z_after = output
    return y, s_after, z_after


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, elu, normalize, eps, ctx.return_state = inputs
    y, denominator, prefix, _, _ = output
    ctx.options = (elu, normalize, eps)
    ctx.mark_non_differentiable(denominator, prefix)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors, y, denominator, prefix)


def _backward(ctx: Any, dy: Tensor | None, *others: Tensor | None) -> tuple[Tensor | None, ...]:
    q, k, v, s, z, beta, gamma, token_index, token_count, y, denominator, prefix = ctx.saved_tensors
    _, _, ds_after, dz_after = others if ctx.return_state else (None,) * 4
    nothing = (None,) * 6
    if dy is None and ds_after is None and dz_after is None:
        return (None,) * TENSORS + nothing
    if torch.is_grad_enabled() or has_tangent(dy, ds_after, dz_after):
        compute = partial(in_pytorch, tokens=(token_index, token_count), options=ctx.options)
        grads = (dy, ds_after, dz_after)
        needed = ctx.needs_input_grad[:TENSORS]
        return *gradients(compute, ctx.saved_tensors[:TENSORS], needed, grads), *nothing
    if dy is None:
        dy = torch.zeros_like(y)
    if (ds_after is None) != (dz_after is None):
        (b, h, _, d), planes = q.shape, 1 if beta is None else 2
        ds_after = denominator.new_zeros(b, h, planes, d, v.shape[-1]) if ds_after is None else ds_after
        dz_after = denominator.new_zeros(b, h, d) if dz_after is None else dz_after
    learned = any(ctx.needs_input_grad[5:TENSORS])
    inputs = (dy, ds_after, dz_after, q, k, v)
    call: Any = causal_operator.backward if eager(*inputs) else torch.ops.momentum.causal_backward
    state, coefficients = (s, z, y, denominator, prefix), (beta, gamma, token_index, token_count)
    dq, dk, dv, ds, dz, d_coefficients = call(*inputs, *state, *coefficients, *ctx.options, learned)
    d_beta = d_gamma = None
    if learned:
        per_head = d_coefficients.sum(0) if beta.shape[0] > 1 else d_coefficients.sum((0, 1))[None]
        d_beta, d_gamma = per_head.unbind(-1)
    return dq, dk, dv, *((None, None) if s is None else (ds, dz)), d_beta, d_gamma, *nothing


class _Causal(torch.autograd.Function):
    """`momentum::causal`, bypassing the dispatcher."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, ...]:
        inputs = (*inputs[:-1], *inputs[-1])
        output = causal_operator.forward(*inputs)
        _setup_context(ctx, inputs, output)
        return output

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        return *_backward(ctx, *grads)[:TENSORS], None


def in_pytorch(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    s: Tensor | None,
    z: Tensor | None,
    beta: Tensor | None,
    gamma: Tensor | None,
    *,
    tokens: tuple[Tensor | None, Tensor | None],
    options: tuple[bool, bool, float],
) -> tuple[Tensor, Tensor, Tensor]:
    """What `momentum::causal` computes, without it: y and the state after the last token."""
    coefficients = Coefficients(beta=beta, gamma=gamma)
    inputs = (q, k, v, None, *coefficients, s, z)
    return recurrent_autograd.in_pytorch(*inputs, tokens=(None, *tokens), options=options, keeps_z=True)


torch.library.register_autograd("momentum::causal", _backward, setup_context=_setup_context)
