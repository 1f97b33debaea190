"""Gradients of `momentum::recurrent`: by native kernels, or by the chunked form for higher derivatives."""

from functools import partial
from typing import Any

import torch

from ...ops.coefficients import Coefficients
from ...ops.feature_maps import elu_plus_one
from ...ops.shapes import Tensor
from ...ops.state import RecurrentState
from ...ops.tracing import eager, has_tangent
from ..call import Call
from ..pytorch import CHUNKED
from . import recurrent_operator
from .higher_derivatives import gradients, mask_of
from .recurrent_operator import INPUTS, TOKENS

COEFFICIENTS = slice(4, 10)  # among the inputs


def recurrent(
    inputs: tuple[Tensor | None, ...],
    tokens: tuple[Tensor | None, ...],
    options: tuple[bool, bool, float],
    *,
    return_state: bool,
    needs_gradients: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """y and the planes and z of the state after the last token; z is empty without a denominator.

    Args:
        inputs: q, k, v, erase, six coefficients, s, z.
        tokens: reset, token_index, token_count.
        options: elu, normalize, eps.
    """
    # the dispatcher adds overhead to every call: bypass it where nothing traces or intercepts the call
    if not eager(*inputs):
        output = torch.ops.momentum.recurrent(*inputs, *tokens, *options, return_state)
    elif needs_gradients:
        output = _Recurrent.apply(*inputs, tokens, (*options, return_state))
    else:
        output = _forward(inputs, tokens, (*options, return_state), keep=False)
    y, _, _, _, s_after, z_after = output
    return y, s_after, z_after


def _forward(
    inputs: tuple[Any, ...], tokens: tuple[Any, ...], options: tuple[Any, ...], *, keep: bool
) -> tuple[Tensor, ...]:
    elu, normalize, eps, return_state = options
    return recurrent_operator.forward(
        inputs, tokens, elu=elu, normalize=normalize, eps=eps, return_state=return_state, keep=keep
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, elu, normalize, eps, ctx.return_state = inputs
    y, denominator, predictions, prefix, _, _ = output
    ctx.options = (elu, normalize, eps)
    ctx.mark_non_differentiable(denominator, predictions, prefix)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors, y, denominator, predictions, prefix)


def _backward(ctx: Any, dy: Tensor | None, *others: Tensor | None) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    inputs, tokens, kept = saved[:INPUTS], saved[INPUTS : INPUTS + TOKENS], saved[INPUTS + TOKENS :]
    ds_after, dz_after = others[-2:] if ctx.return_state else (None, None)
    elu, normalize, eps = ctx.options
    needed, nothing = ctx.needs_input_grad[:INPUTS], (None,) * (TOKENS + 4)
    if not normalize:
        dz_after = None
    if dy is None and ds_after is None and dz_after is None:
        return (None,) * INPUTS + nothing
    if torch.is_grad_enabled() or has_tangent(dy, ds_after, dz_after):
        compute = partial(in_pytorch, tokens=tokens, options=ctx.options)
        return *gradients(compute, inputs, needed, (dy, ds_after, dz_after)), *nothing
    grads = (torch.zeros_like(kept[0]) if dy is None else dy, ds_after, dz_after)
    learned = tuple(needed[COEFFICIENTS])
    if eager(*grads, *inputs):
        found = recurrent_operator.backward(
            grads, inputs, tokens, kept, elu=elu, normalize=normalize, eps=eps, learned=learned
        )
    else:
        flat = (*grads, *inputs, *tokens, *kept, elu, normalize, eps, list(learned))
        found = torch.ops.momentum.recurrent_backward(*flat)
    shaped = [_like(x, made) for x, made in zip(inputs, found, strict=True)]
    return *(x if need else None for x, need in zip(shaped, needed, strict=True)), *nothing


def _like(x: Tensor | None, made: Tensor) -> Tensor | None:
    """The gradient of an input: of a coefficient for all tokens, its parts (b, h) summed."""
    if x is None:
        return None
    if x.ndim != 1 or made.ndim != 2:
        return made
    return made.sum(0) if x.shape[0] > 1 else made.sum()[None]


class _Recurrent(torch.autograd.Function):
    """`momentum::recurrent`, bypassing the dispatcher."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> tuple[Tensor, ...]:
        *inputs, tokens, options = given
        output = _forward(tuple(inputs), tokens, options, keep=True)
        _setup_context(ctx, (*inputs, *tokens, *options), output)
        return output

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        return *_backward(ctx, *grads)[:INPUTS], None, None


def in_pytorch(
    *inputs: Tensor | None,
    tokens: tuple[Tensor | None, ...],
    options: tuple[bool, bool, float],
    keeps_z: bool | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """What `momentum::recurrent` computes, without it: y and the state after the last token.

    `keeps_z` is whether z is part of the state; without it, it is where there is a denominator.
    """
    q, k, v, erase, *coefficients, s, z = inputs
    assert q is not None
    assert k is not None
    assert v is not None
    c, (elu, normalize, eps) = Coefficients(*coefficients), options
    reset, *positions = tokens
    mask = mask_of(*positions)
    state = None
    if s is not None:
        state = RecurrentState(s[..., 0, :, :], None if c.beta is None else s[..., 1, :, :], z)
    call = Call(
        q,
        k,
        v,
        c,
        erase,
        feature_map=elu_plus_one if elu else None,
        key_mask=mask,
        query_mask=mask,
        reset=reset,
        state=state,
        return_state=True,
        normalize=normalize,
        keeps_z=normalize if keeps_z is None else keeps_z,
        eps=eps,
    )
    y, after = CHUNKED.run(call)
    assert after is not None
    planes = after.s[..., None, :, :] if after.m is None else torch.stack([after.s, after.m], -3)
    return y, planes, v.new_empty((0,)) if after.z is None else after.z


torch.library.register_autograd("momentum::recurrent", _backward, setup_context=_setup_context)
