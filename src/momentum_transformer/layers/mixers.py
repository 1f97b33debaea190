"""How tokens mix: small frozen objects, passed to the one attention layer.

A mixer is called with q, k, v (b, h, n, d) and a `Situation`, and returns (y, state). `build` gives what a
layer holds: the mixer itself where there is nothing to learn, a module with the same call where there is.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from ..attention import WEIGHTINGS, Weighting, linear_attention, momentum_attention
from ..ops.checks import MOMENTUM, STEP_SIZE, check_choice, check_number
from ..ops.feature_maps import FeatureMap, elu_plus_one
from ..ops.softmax import softmax_attention


class Situation(NamedTuple):
    """What a mixer is told besides q, k and v."""

    causal: bool
    key_mask: Tensor | None = None
    state: Any = None
    return_state: bool = False
    training: bool = False
    query_mask: Tensor | None = None  # by default `key_mask`, where queries and keys are equally many

    def mask_of_queries(self, q: Tensor, k: Tensor) -> Tensor | None:
        if self.query_mask is not None or q.shape[2] != k.shape[2]:
            return self.query_mask
        return self.key_mask


Mix = Callable[[Tensor, Tensor, Tensor, Situation], tuple[Tensor, Any]]


class Mixer(Protocol):
    def build(self, heads: int) -> Mix: ...


@dataclass(frozen=True)
class SoftmaxAttention:
    """Softmax attention (eq. 3); `dropout` falls on the attention weights while training."""

    dropout: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), not {self.dropout}")

    def build(self, heads: int) -> "SoftmaxAttention":
        return self

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, at: Situation) -> tuple[Tensor, Any]:
        result = softmax_attention(  # type: ignore[call-overload]  # both overloads at once
            q,
            k,
            v,
            causal=at.causal,
            key_mask=at.key_mask,
            query_mask=at.query_mask,
            state=at.state,
            return_state=at.return_state,
            dropout=self.dropout if at.training else 0.0,
        )
        return result if isinstance(result, tuple) else (result, None)


@dataclass(frozen=True)
class LinearAttention:
    """Linear attention (eq. 5, 7, 8)."""

    feature_map: FeatureMap | None = elu_plus_one
    normalize: bool = True

    def build(self, heads: int) -> "LinearAttention":
        return self

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, at: Situation) -> tuple[Tensor, Any]:
        result = linear_attention(
            q,
            k,
            v,
            causal=at.causal,
            key_mask=at.key_mask,
            query_mask=at.query_mask,
            feature_map=self.feature_map,
            normalize=self.normalize,
            state=at.state,
            return_state=at.return_state,
        )
        return result if isinstance(result, tuple) else (result, None)


@dataclass(frozen=True)
class MomentumAttention:
    """Momentum attention (eq. 12, 13, 14) with constant β and γ."""

    beta: float = 0.1
    gamma: float = 1.0
    weighting: Weighting = "relative"
    feature_map: FeatureMap | None = elu_plus_one
    normalize: bool = True

    def __post_init__(self) -> None:
        check_number("beta", self.beta, MOMENTUM)
        check_number("gamma", self.gamma, STEP_SIZE)
        check_choice("weighting", self.weighting, WEIGHTINGS)

    def build(self, heads: int) -> "MomentumAttention":
        return self

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, at: Situation) -> tuple[Tensor, Any]:
        return self.mix(q, k, v, at, self.beta, self.gamma)

    def mix(
        self, q: Tensor, k: Tensor, v: Tensor, at: Situation, beta: float | Tensor, gamma: float | Tensor
    ) -> tuple[Tensor, Any]:
        result = momentum_attention(
            q,
            k,
            v,
            beta=beta,
            gamma=gamma,
            causal=at.causal,
            key_mask=at.key_mask,
            query_mask=at.query_mask,
            feature_map=self.feature_map,
            weighting=self.weighting,
            normalize=self.normalize,
            state=at.state,
            return_state=at.return_state,
        )
        return result if isinstance(result, tuple) else (result, None)


@dataclass(frozen=True)
class LearnedMomentumAttention:
    """Momentum attention whose β and γ are learned, one pair a head and layer, from `start`."""

    start: MomentumAttention = MomentumAttention()

    def build(self, heads: int) -> "LearnedMomentum":
        return LearnedMomentum(self.start, heads)


class LearnedMomentum(nn.Module):
    """β = sigmoid(a) and γ = exp(c), so that every step of the optimizer stays in range."""

    def __init__(self, start: MomentumAttention, heads: int) -> None:
        super().__init__()
        if start.beta == 0:
            raise ValueError("a learned beta cannot start at 0, where sigmoid has no slope; use for instance 0.01")
        self.start = start
        self.beta_logit = nn.Parameter(torch.full((heads,), math.log(start.beta / (1 - start.beta))))
        self.gamma_log = nn.Parameter(torch.full((heads,), math.log(start.gamma)))

    def forward(self, q: Tensor, k: Tensor, v: Tensor, at: Situation) -> tuple[Tensor, Any]:
        # float64, where the largest sigmoid that float32 can tell from 1 is still below 1
        beta, gamma = self.beta_logit.double().sigmoid().clamp(max=1 - 1e-9), self.gamma_log.double().exp()
        return self.start.mix(q, k, v, at, beta, gamma)
