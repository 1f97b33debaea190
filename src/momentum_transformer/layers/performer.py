"""Performer as a mixer: softmax attention estimated by random features, in linear time."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..attention import linear_attention
from ..ops.autocast import full_precision
from ..ops.checks import check_mask, check_qkv
from ..ops.random_features import log_features, orthogonal_gaussian
from .parts import with_parts
from .short_convolution import ShortConvolution
from .situation import Mix, Situation

EPSILON = 1e-12  # only so that a query that sees no key gives 0


@dataclass(frozen=True)
class PerformerAttention:
    """FAVOR+: softmax attention estimated by random features.

    Args:
        features: orthogonal random directions.
        redraw: calls in training after which directions are drawn anew.
        convolution: of q, k and v, before they mix; None for none.

    Examples:
        >>> encoder = Encoder(2, 16, 2, attention=PerformerAttention(features=64))
    """

    features: int = 256
    redraw: int = 1000
    convolution: ShortConvolution | None = None

    def __post_init__(self) -> None:
        if self.features < 1 or self.redraw < 1:
            raise ValueError(f"features and redraw must be 1 or more, not {self.features} and {self.redraw}")

    def build(self, width: int, heads: int) -> Mix:
        return with_parts(Performer(self), width, heads, self.convolution)


class Performer(nn.Module):
    """Directions are a function of a seed and of the calls so far, and these two are what a checkpoint holds."""

    seed: Tensor
    calls: Tensor

    def __init__(self, options: PerformerAttention) -> None:
        super().__init__()
        self.options = options
        self.register_buffer("seed", torch.randint(2**40, ()))
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self._drawn: tuple[Any, Tensor] | None = None

    def forward(self, q: Tensor, k: Tensor, v: Tensor, at: Situation) -> tuple[Tensor, Any]:
        at.refuse_reset("PerformerAttention")
        check_qkv(q, k, v, causal=at.causal)
        check_mask("key_mask", at.key_mask, k)
        if at.training:
            self.calls += 1
        query_mask = at.mask_of_queries(q, k)
        if at.key_mask is not None:  # a NaN in the padding stays out of sight
            k = torch.where(at.key_mask[:, None, :, None], k, 0)
        if query_mask is not None:
            q = torch.where(query_mask[:, None, :, None], q, 0)
        wide = torch.promote_types(q.dtype, torch.float32)
        with full_precision(q.device):
            directions = self.directions(q.shape[-1]).to(q.device, wide)
            result = linear_attention(
                _query_features(q.to(wide), directions),
                _key_features(k.to(wide), directions, at),
                v.to(wide),
                causal=at.causal,
                key_mask=at.key_mask,
                query_mask=query_mask,
                feature_map=None,
                state=at.state,
                return_state=at.return_state,
                eps=EPSILON,
            )
        y, state = result if isinstance(result, tuple) else (result, None)
        return y.to(v.dtype), state

    def directions(self, width: int) -> Tensor:
        """(features, width), float64, kept until they are due to be drawn anew."""
        # the first call in training counts as 1: the first `redraw` of them share their directions
        seed = int(self.seed) + max(int(self.calls) - 1, 0) // self.options.redraw
        if self._drawn is None or self._drawn[0] != (seed, width):
            self._drawn = ((seed, width), orthogonal_gaussian(self.options.features, width, seed=seed))
        return self._drawn[1]


def _query_features(q: Tensor, directions: Tensor) -> Tensor:
    """Scaled by each query's largest feature, which numerator and denominator share."""
    logs = log_features(q, directions)
    return torch.exp(logs - logs.amax(-1, keepdim=True).detach())


def _key_features(k: Tensor, directions: Tensor, at: Situation) -> Tensor:
    """Scaled by the largest feature of all keys; not where order matters, for a later key must not touch the past."""
    logs = log_features(k, directions)
    if at.key_mask is not None:
        logs = logs.masked_fill(~at.key_mask[:, None, :, None], -torch.inf)
    if at.causal or not k.shape[-2]:
        return torch.exp(logs)
    largest = logs.amax((-2, -1), keepdim=True).detach()
    return torch.exp(logs - torch.where(largest.isfinite(), largest, 0))
