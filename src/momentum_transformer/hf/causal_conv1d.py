"""Transformers' short causal convolutions, `causal_conv1d_fn` and `causal_conv1d_update`."""

import torch
import torch.nn.functional as F  # noqa: N812 (the field's name for it)
from torch import Tensor

from ..backend.cpu.cached_step_operator import convolution_step, serves
from ..backend.cpu.convolution_operator import MOST_TAPS
from ..backend.surroundings import short_convolution
from ..ops.shapes import Float
from .packing import document_starts

SILU = ("silu", "swish")


def causal_conv1d_fn(
    hidden_states: Float[Tensor, "b c n"],
    weight: Float[Tensor, "c taps"],
    bias: Float[Tensor, "c"] | None = None,
    activation: str | None = None,
    *,
    cu_seq_lens_q: Tensor | None = None,
    seq_idx: Tensor | None = None,
    **_others: object,
) -> Float[Tensor, "b c n"]:
    """Each channel over the last `taps` tokens of its document, then the activation."""
    b, _, n = hidden_states.shape
    starts = None
    if cu_seq_lens_q is not None or seq_idx is not None:
        starts = document_starts(b, n, cu_seqlens=cu_seq_lens_q, seq_idx=seq_idx)
    silu = activation in SILU
    y, _ = short_convolution(hidden_states.transpose(1, 2), weight, bias=bias, reset=starts, silu=silu)
    return (y if silu else _activated(y, activation)).transpose(1, 2)


def causal_conv1d_update(
    hidden_states: Float[Tensor, "b c 1"],
    conv_state: Float[Tensor, "b c r"],
    weight: Float[Tensor, "c taps"],
    bias: Float[Tensor, "c"] | None = None,
    activation: str | None = None,
) -> Float[Tensor, "b c 1"]:
    """The convolution for one token; `conv_state`, the last r tokens, is updated in place."""
    (_, taps), r = weight.shape, conv_state.shape[2]
    if 2 <= taps <= min(MOST_TAPS, r + 1) and serves(conv_state, hidden_states, weight, bias):
        silu = activation in SILU
        y = convolution_step(hidden_states[..., 0], conv_state, weight, bias, silu=silu)
        return (y if silu else _activated(y, activation))[..., None].to(hidden_states.dtype)
    before = conv_state if r < taps else conv_state[..., 1:]
    line = torch.cat([before, hidden_states.to(conv_state.dtype)], -1)
    conv_state.copy_(line[..., -r:])
    wide = torch.promote_types(line.dtype, torch.float32)
    w, line = weight.to(wide), line[..., -taps:].to(wide)
    y = line[..., 0] * w[:, 0] if bias is None else torch.addcmul(bias.to(wide), line[..., 0], w[:, 0])
    for i in range(1, taps):  # a sum over an axis as short as this would be slower
        y = torch.addcmul(y, line[..., i], w[:, i])
    return _activated(y, activation)[..., None].to(hidden_states.dtype)


def _activated(y: Tensor, activation: str | None) -> Tensor:
    if activation in SILU:
        return F.silu(y)
    if activation is None:
        return y
    from transformers.activations import ACT2FN

    return ACT2FN[activation](y)
