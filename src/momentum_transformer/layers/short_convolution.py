"""Short convolution of q, k and v: a part of a mixer."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from ..backend.surroundings import short_convolution, two_way_convolution
from ..context import Context, current_context, refuse_split
from ..ops.checks import check_choice
from ..ops.convolution import border
from .situation import Situation

Pasts = tuple[Tensor, Tensor, Tensor]  # (b, taps - 1, width) of q, k and v


@dataclass(frozen=True)
class ShortConvolution:
    """q, k and v each become a mixture of the last tokens, channel by channel.

    Args:
        taps: tokens of a mixture, 2 to 8, the token itself among them.
        activation: of the mixture, "silu" or "none".

    Examples:
        >>> encoder = Encoder(2, 16, 2, attention=LinearAttention(convolution=ShortConvolution(taps=3)))
    """

    taps: int = 4
    activation: Literal["silu", "none"] = "silu"

    def __post_init__(self) -> None:
        if isinstance(self.taps, bool) or not isinstance(self.taps, int) or not 2 <= self.taps <= 8:
            raise ValueError(f"taps must be 2 to 8, not {self.taps!r}")
        check_choice("activation", self.activation, ("silu", "none"))

    def build(self, width: int, heads: int) -> "Convolution":
        return Convolution(self, width, heads)


class Convolution(nn.Module):
    """Three depthwise convolutions without bias. Without causal order, half of the heads look at what comes after."""

    def __init__(self, options: ShortConvolution, width: int, heads: int) -> None:
        super().__init__()
        self.options, self.heads = options, heads
        bound = 1 / math.sqrt(options.taps)
        self.query, self.key, self.value = (
            nn.Parameter(torch.empty(width, options.taps).uniform_(-bound, bound)) for _ in range(3)
        )

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, at: Situation, pasts: Pasts | None
    ) -> tuple[Tensor, Tensor, Tensor, Pasts | None]:
        """q, k, v (b, h, n, d) convolved, and the last tokens of each; without causal order there are none."""
        for past in pasts or ():
            self._check(past, q)
        heads, width = q.shape[1], q.shape[3]
        lines = [x.transpose(1, 2).flatten(2) for x in (q, k, v)]  # (b, n, h · d)
        weights, silu = (self.query, self.key, self.value), self.options.activation == "silu"
        context = current_context()
        if at.causal:
            if context is not None:
                pasts = self._before(lines, at, context)
            before = (None, None, None) if pasts is None else pasts
            made = [
                short_convolution(x, weight, past, mask=at.key_mask, reset=at.reset, silu=silu)
                for x, weight, past in zip(lines, weights, before, strict=True)
            ]
            (q, q_past), (k, k_past), (v, v_past) = made
            pasts = q_past, k_past, v_past
        else:
            refuse_split("a convolution without causal order")
            q, k, v = (
                two_way_convolution(x, weight, turned=heads // 2 * width, mask=at.key_mask, reset=at.reset, silu=silu)
                for x, weight in zip(lines, weights, strict=True)
            )
            pasts = None
        q, k, v = (x.unflatten(2, (heads, -1)).transpose(1, 2) for x in (q, k, v))
        return q, k, v, pasts

    def _before(self, lines: list[Tensor], at: Situation, context: Context) -> Pasts:
        """The last tokens of q, k and v of the processes before this one, in one exchange."""
        made = [border(x, self.options.taps - 1, mask=at.key_mask, reset=at.reset) for x in lines]
        last = torch.cat([x for _, x in made], -1)
        q, k, v = context.state_before(made[0][0], last).chunk(3, -1)
        return q, k, v

    def _check(self, past: Tensor, q: Tensor) -> None:
        shape = (q.shape[0], self.options.taps - 1, q.shape[1] * q.shape[3])
        if tuple(past.shape) != shape or past.device != q.device:
            raise ValueError(
                f"state.convolution must have tensors of shape {shape} on {q.device}, not {tuple(past.shape)} on "
                f"{past.device}"
            )

    def extra_repr(self) -> str:
        return f"taps={self.options.taps}, activation={self.options.activation}"
