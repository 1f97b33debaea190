"""How tokens mix in the paper: softmax, linear and momentum attention; and softmax attention with a window."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..attention import WEIGHTINGS, Weighting, linear_attention, momentum_attention, recurrent_attention
from ..context import refuse_split
from ..ops.checks import MOMENTUM, STEP_SIZE, check_choice, check_number
from ..ops.feature_maps import FeatureMap, elu_plus_one
from ..ops.softmax import check_window, softmax_attention
from .parts import with_parts
from .short_convolution import ShortConvolution
from .situation import Mix, Situation


@dataclass(frozen=True)
class SoftmaxAttention:
    """Softmax attention (eq. 3).

    Args:
        dropout: of the attention weights, while training.
        convolution: of q, k and v, before they mix; None for none.

    Examples:
        >>> encoder = Encoder(2, 16, 2, attention=SoftmaxAttention())
    """

    dropout: float = 0.0
    convolution: ShortConvolution | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), not {self.dropout}")

    def build(self, width: int, heads: int) -> Mix:
        return with_parts(self, width, heads, self.convolution)

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, at: Situation) -> tuple[Tensor, Any]:
        return _softmax(q, k, v, at, dropout=self.dropout, window=None)


@dataclass(frozen=True)
class WindowAttention:
    """Softmax attention over the last `window` tokens: linear time, and a cache of window - 1 tokens.

    Without causal order a token sees as many on either side. Masked tokens take no place in the window; with a mask
    every key is looked at, in quadratic time.

    Args:
        window: tokens that one sees, itself among them.
        dropout: of the attention weights, while training.
        convolution: of q, k and v, before they mix; None for none.

    Examples:
        >>> encoder = Encoder(2, 16, 2, attention=WindowAttention(128))
    """

    window: int
    dropout: float = 0.0
    convolution: ShortConvolution | None = None

    def __post_init__(self) -> None:
        check_window(self.window)
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), not {self.dropout}")

    def build(self, width: int, heads: int) -> Mix:
        return with_parts(self, width, heads, self.convolution)

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, at: Situation) -> tuple[Tensor, Any]:
        return _softmax(q, k, v, at, dropout=self.dropout, window=self.window)


def _softmax(
    q: Tensor, k: Tensor, v: Tensor, at: Situation, *, dropout: float, window: int | None
) -> tuple[Tensor, Any]:
    refuse_split("softmax attention")
    found = softmax_attention(
        q,
        k,
        v,
        causal=at.causal,
        key_mask=at.key_mask,
        query_mask=at.query_mask,
        reset=at.reset,
        window=window,
        state=at.state,
        return_state=at.return_state,
        dropout=dropout if at.training else 0.0,
    )
    return found if at.return_state else (found, None)


def _mixed(
    attend: Callable[..., Any], q: Tensor, k: Tensor, v: Tensor, at: Situation, **options: Any
) -> tuple[Tensor, Any]:
    """Linear or momentum attention in a situation."""
    found = attend(
        q,
        k,
        v,
        **options,
        causal=at.causal,
        key_mask=at.key_mask,
        query_mask=at.query_mask,
        state=at.state,
        return_state=at.return_state,
    )
    return found if at.return_state else (found, None)


def _packed(q: Tensor, k: Tensor, v: Tensor, at: Situation, **member: Any) -> tuple[Tensor, None]:
    """Linear or momentum attention of packed documents, as a member of the family, all of which know resets."""
    if not at.causal or at.state is not None or at.return_state:
        raise ValueError("packed documents need causal order, and neither take nor return a state here")
    if at.query_mask is not None:
        raise ValueError("packed documents have one mask, that of their tokens")
    return recurrent_attention(q, k, v, **member, key_mask=at.key_mask, reset=at.reset), None


@dataclass(frozen=True)
class LinearAttention:
    """Linear attention (eq. 5, 7, 8).

    Args:
        feature_map: φ, applied to q and k; None where they are features already.
        normalize: whether y is divided by the denominator.
        convolution: of q, k and v, before they mix; None for none.

    Examples:
        >>> encoder = Encoder(2, 16, 2, attention=LinearAttention())
    """

    feature_map: FeatureMap | None = elu_plus_one
    normalize: bool = True
    convolution: ShortConvolution | None = None

    def build(self, width: int, heads: int) -> Mix:
        return with_parts(self, width, heads, self.convolution)

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, at: Situation) -> tuple[Tensor, Any]:
        if at.reset is not None:
            return _packed(q, k, v, at, feature_map=self.feature_map, normalize=self.normalize)
        return _mixed(linear_attention, q, k, v, at, feature_map=self.feature_map, normalize=self.normalize)


@dataclass(frozen=True)
class MomentumAttention:
    """Momentum attention (eq. 12, 13, 14) with constant β and γ.

    Args:
        beta: momentum in [0, 1); 0 with γ = 1 is linear attention.
        gamma: step size.
        weighting: "relative", by the distance of query and key; or "terminal", as the authors' released code has it.
        feature_map: φ, applied to q and k; None where they are features already.
        normalize: whether y is divided by the denominator.
        convolution: of q, k and v, before they mix; None for none.

    Examples:
        >>> encoder = Encoder(2, 16, 2, attention=MomentumAttention(beta=0.6, gamma=0.9))
    """

    beta: float = 0.1
    gamma: float = 1.0
    weighting: Weighting = "relative"
    feature_map: FeatureMap | None = elu_plus_one
    normalize: bool = True
    convolution: ShortConvolution | None = None

    def __post_init__(self) -> None:
        check_number("beta", self.beta, MOMENTUM)
        check_number("gamma", self.gamma, STEP_SIZE)
        check_choice("weighting", self.weighting, WEIGHTINGS)

    def build(self, width: int, heads: int) -> Mix:
        return with_parts(self, width, heads, self.convolution)

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, at: Situation) -> tuple[Tensor, Any]:
        return self.mix(q, k, v, at, self.beta, self.gamma)

    def mix(
        self, q: Tensor, k: Tensor, v: Tensor, at: Situation, beta: float | Tensor, gamma: float | Tensor
    ) -> tuple[Tensor, Any]:
        """Attend with β and γ from elsewhere, such as learned ones."""
        if at.reset is not None and self.weighting == "relative":
            coefficients = {"beta": beta, "gamma": gamma}
            return _packed(q, k, v, at, **coefficients, feature_map=self.feature_map, normalize=self.normalize)
        at.refuse_reset("terminal weighting")
        options = {"feature_map": self.feature_map, "normalize": self.normalize, "weighting": self.weighting}
        return _mixed(momentum_attention, q, k, v, at, beta=beta, gamma=gamma, **options)


@dataclass(frozen=True)
class LearnedMomentumAttention:
    """Momentum attention whose β and γ are learned, one pair a head and layer.

    Args:
        start: the β and γ that learning starts from, and everything else.

    Examples:
        >>> from momentum_transformer.layers import LearnedMomentumAttention
        >>> encoder = Encoder(2, 16, 2, attention=LearnedMomentumAttention(MomentumAttention(beta=0.5)))
    """

    start: MomentumAttention = MomentumAttention()

    def build(self, width: int, heads: int) -> Mix:
        return with_parts(LearnedMomentum(self.start, heads), width, heads, self.start.convolution)


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
        return self.start.mix(q, k, v, at, *self.coefficients())

    def coefficients(self) -> tuple[Tensor, Tensor]:
        """β and γ (h,), in float64, where the largest sigmoid that float32 can tell from 1 is still below 1."""
        return self.beta_logit.double().sigmoid().clamp(max=1 - 1e-9), self.gamma_log.double().exp()
