"""Transformers' short causal convolutions, `causal_conv1d_fn` and `causal_conv1d_update`."""

import torch
import torch.nn.functional as F  # noqa: N812 (the field's name for it)
from torch import Tensor

from ..ops.convolution import short_convolution
from ..ops.shapes import Float
from .packing import document_starts


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
        new = int(cu_seq_lens_q[-1]) if cu_seq_lens_q is not None else seq_idx.shape[1]  # type: ignore[union-attr]
        starts = document_starts(b, new, cu_seqlens=cu_seq_lens_q, seq_idx=seq_idx)
        starts = None if starts is None else F.pad(starts, (n - new, 0))  # tokens that a cache kept come first
    y = _convolve(hidden_states.transpose(1, 2).to(weight.dtype), weight, bias, starts)
    return _activated(y, activation).transpose(1, 2).to(hidden_states.dtype)


def causal_conv1d_update(
    hidden_states: Float[Tensor, "b c 1"],
    conv_state: Float[Tensor, "b c r"],
    weight: Float[Tensor, "c taps"],
    bias: Float[Tensor, "c"] | None = None,
    activation: str | None = None,
) -> Float[Tensor, "b c 1"]:
    """The same for one token; `conv_state`, the last r tokens, takes it in, in place."""
    taps = weight.shape[1]
    line = torch.cat([conv_state, hidden_states.to(conv_state.dtype)], -1)
    conv_state.copy_(line[..., 1:])
    y = (line[..., -taps:].float() * weight.float()).sum(-1)
    y = y if bias is None else y + bias.float()
    return _activated(y, activation)[..., None].to(hidden_states.dtype)


def _convolve(
    x: Float[Tensor, "b n c"], weight: Float[Tensor, "c taps"], bias: Tensor | None, starts: Tensor | None
) -> Float[Tensor, "b n c"]:
    if starts is not None:
        y, _ = short_convolution(x, weight, reset=starts)
        return y if bias is None else y + bias
    (channels, taps), n = weight.shape, x.shape[1]
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        y = F.conv1d(x.transpose(1, 2), weight[:, None], bias, padding=taps - 1, groups=channels)
        return y[..., :n].transpose(1, 2)
    # as a picture of height one with its channels last, x need not be turned into lines of tokens and back
    picture, row = x.transpose(1, 2)[:, :, None], weight[:, None, None]
    y = F.conv2d(picture, row, bias, padding=(0, taps - 1), groups=channels)
    return y[:, :, 0, :n].transpose(1, 2)


def _activated(y: Tensor, activation: str | None) -> Tensor:
    if activation in ("silu", "swish"):
        return F.silu(y)
    if activation is None:
        return y
    from transformers.activations import ACT2FN

    return ACT2FN[activation](y)
