"""Linformer as a mixer: softmax attention over a fixed number of learned mixtures of all keys and values."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..context import refuse_split
from ..ops.checks import check_mask, check_qkv
from ..ops.softmax import softmax_attention
from .parts import with_parts
from .short_convolution import ShortConvolution
from .situation import Mix, Situation


@dataclass(frozen=True)
class LinformerAttention:
    """Softmax attention over learned mixtures of keys and values, without causal order.

    Args:
        length: tokens of the longest sequence.
        features: mixtures.
        share: whether keys and values have one set of weights, as in the paper.
        convolution: of q, k and v, before they mix; None for none.

    Examples:
        >>> encoder = Encoder(2, 16, 2, attention=LinformerAttention(length=100, features=16), causal=False)
    """

    length: int
    features: int = 256
    share: bool = True
    convolution: ShortConvolution | None = None

    def __post_init__(self) -> None:
        if self.length < 1 or self.features < 1:
            raise ValueError(f"length and features must be 1 or more, not {self.length} and {self.features}")

    def build(self, width: int, heads: int) -> Mix:
        return with_parts(Linformer(self, heads), width, heads, self.convolution)


class Linformer(nn.Module):
    """softmax(q(Ek)ᵀ/√d) Fv, with E and F per head, and E = F where they are shared. Masked tokens are left out."""

    def __init__(self, options: LinformerAttention, heads: int) -> None:
        super().__init__()
        self.options = options
        shape = (heads, options.features, options.length)
        self.key_weights = nn.Parameter(torch.randn(shape) * 0.02)
        self.value_weights = None if options.share else nn.Parameter(torch.randn(shape) * 0.02)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, at: Situation) -> tuple[Tensor, Any]:
        at.refuse_reset("LinformerAttention")
        refuse_split("Linformer")
        if at.causal:
            raise ValueError(
                "LinformerAttention cannot be causal: each of its mixtures holds tokens from the whole sequence; "
                "build the encoder with causal=False, or use PerformerAttention"
            )
        check_qkv(q, k, v, causal=False)
        check_mask("key_mask", at.key_mask, k)
        n, length = k.shape[-2], self.options.length
        if n > length:
            raise ValueError(f"LinformerAttention was built for up to {length} tokens, not {n}; raise its length")
        if at.key_mask is not None:
            real = at.key_mask[:, None, :, None]
            k, v = torch.where(real, k, 0), torch.where(real, v, 0)
        value_weights = self.key_weights if self.value_weights is None else self.value_weights
        keys, values = (w[..., :n].to(x.dtype) @ x for w, x in ((self.key_weights, k), (value_weights, v)))
        return softmax_attention(q, keys, values, causal=False, query_mask=at.mask_of_queries(q, k)), None
