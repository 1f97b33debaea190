"""How tokens mix beyond the paper: members of the family whose coefficients x decides, with the parts around them.

Causal, they are one call of `recurrent_attention`. Without causal order half of the heads read the tokens from the
first to the last, and half from the last to the first.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..attention import recurrent_attention
from ..ops.checks import MOMENTUM, STEP_SIZE, check_number
from ..ops.feature_maps import FeatureMap, elu_plus_one, l2_normalized
from .gates import Decay, Gate, Share, StepSize, Strength, open_gates
from .paper_mixers import LinearAttention
from .parts import Tail, tokens_of, with_parts
from .short_convolution import ShortConvolution
from .situation import Mix, Mixer, Situation

DECAY_STEPS = (0.001, 0.1)
ACROSS = LinearAttention()  # used for cross attention, where there is no x to compute gates from


@dataclass(frozen=True)
class RetentionAttention:
    """s decays by 1 - 2^(-5-h) in head h (RetNet).

    Args:
        convolution: of q, k and v, before they mix; None for none.
        tail: the norm and gate behind the mixer; None for neither.

    Examples:
        >>> encoder = Encoder(2, 16, 2, attention=RetentionAttention())
    """

    convolution: ShortConvolution | None = None
    tail: Tail | None = field(default_factory=Tail)
    across: ClassVar[Mixer] = ACROSS

    def build(self, width: int, heads: int) -> Mix:
        decay = tuple(1 - 2.0 ** (-5 - head) for head in range(heads))
        return with_parts(Recurrence(alpha=decay), width, heads, self.convolution, self.tail)


@dataclass(frozen=True)
class DeltaAttention:
    """The delta rule: a key that comes again replaces its value, as far as x says (DeltaNet).

    Args:
        negative: whether x may go twice as far: an update may then reflect what it finds, to count modulo two.
        convolution: of q, k and v, before they mix; None for none.
        tail: the norm and gate behind the mixer; None for neither.

    Examples:
        >>> encoder = Encoder(2, 16, 2, attention=DeltaAttention())
    """

    negative: bool = False
    convolution: ShortConvolution | None = field(default_factory=ShortConvolution)
    tail: Tail | None = field(default_factory=lambda: Tail(gate="none"))
    across: ClassVar[Mixer] = ACROSS

    def build(self, width: int, heads: int) -> Mix:
        strength = Strength(width, heads, most=2.0 if self.negative else 1.0)
        mix = Recurrence(eta=strength, erases=True, feature_map=l2_normalized)
        return with_parts(mix, width, heads, self.convolution, self.tail)


@dataclass(frozen=True)
class GatedDeltaAttention:
    """The delta rule on a state that x lets decay (Gated DeltaNet).

    Args:
        negative: whether an update may reflect what it finds, as in DeltaAttention.
        steps: bounds of the steps that the decay starts with; shorter ones remember longer. None: no decay.
        convolution: of q, k and v, before they mix; None for none.
        tail: the norm and gate behind the mixer; None for neither.

    Examples:
        >>> encoder = Encoder(2, 16, 2, attention=GatedDeltaAttention())
    """

    negative: bool = False
    steps: tuple[float, float] | None = DECAY_STEPS
    convolution: ShortConvolution | None = field(default_factory=ShortConvolution)
    tail: Tail | None = field(default_factory=Tail)
    across: ClassVar[Mixer] = ACROSS

    def __post_init__(self) -> None:
        check_steps(self.steps)

    def build(self, width: int, heads: int) -> Mix:
        mix = Recurrence(
            alpha=None if self.steps is None else Decay(width, heads, steps=self.steps),
            eta=Strength(width, heads, most=2.0 if self.negative else 1.0),
            erases=True,
            feature_map=l2_normalized,
        )
        return with_parts(mix, width, heads, self.convolution, self.tail)


@dataclass(frozen=True)
class MomentumDeltaAttention:
    """The paper's momentum on top of the gated delta rule, with β from x.

    Updates are averaged, (1 - β) of each, so that momentum changes their direction and not their size.

    Args:
        beta: what β is at the start of training, whatever x is.
        negative: whether an update may reflect what it finds, as in DeltaAttention.
        steps: bounds of the steps that the decay starts with; shorter ones remember longer. None: no decay.
        convolution: of q, k and v, before they mix; None for none.
        tail: the norm and gate behind the mixer; None for neither.

    Examples:
        >>> encoder = Encoder(2, 16, 2, attention=MomentumDeltaAttention())
    """

    beta: float = 0.5
    negative: bool = False
    steps: tuple[float, float] | None = DECAY_STEPS
    convolution: ShortConvolution | None = field(default_factory=ShortConvolution)
    tail: Tail | None = field(default_factory=Tail)
    across: ClassVar[Mixer] = ACROSS

    def __post_init__(self) -> None:
        check_start(self.beta)
        check_steps(self.steps)

    def build(self, width: int, heads: int) -> Mix:
        mix = Recurrence(
            alpha=None if self.steps is None else Decay(width, heads, steps=self.steps),
            beta=Share(width, heads, start=self.beta),
            eta=Strength(width, heads, most=2.0 if self.negative else 1.0),
            erases=True,
            averages=True,
            feature_map=l2_normalized,
        )
        return with_parts(mix, width, heads, self.convolution, self.tail)


@dataclass(frozen=True)
class GatedMomentumAttention:
    """The paper's rule, features and denominator, with β and γ from x.

    Args:
        beta: what β is at the start of training, whatever x is.
        gamma: what γ is at the start of training, likewise.
        feature_map: φ, applied to q and k.
        convolution: of q, k and v, before they mix; None for none.
        tail: the norm and gate behind the mixer; None for neither.

    Examples:
        >>> encoder = Encoder(2, 16, 2, attention=GatedMomentumAttention())
    """

    beta: float = 0.1
    gamma: float = 1.0
    feature_map: FeatureMap = elu_plus_one
    convolution: ShortConvolution | None = None
    tail: Tail | None = None
    across: ClassVar[Mixer] = ACROSS

    def __post_init__(self) -> None:
        check_start(self.beta)
        check_number("gamma", self.gamma, STEP_SIZE)

    def build(self, width: int, heads: int) -> Mix:
        mix = Recurrence(
            beta=Share(width, heads, start=self.beta),
            gamma=StepSize(width, heads, start=self.gamma),
            feature_map=self.feature_map,
            normalize=True,
        )
        return with_parts(mix, width, heads, self.convolution, self.tail)


def check_start(beta: float) -> None:
    check_number("beta", beta, MOMENTUM)
    if beta == 0:
        raise ValueError("a learned beta cannot start at 0, where sigmoid has no slope; use for instance 0.01")


def check_steps(steps: tuple[float, float] | None) -> None:
    if steps is None:
        return
    if not isinstance(steps, tuple | list) or len(steps) != 2:
        raise ValueError(f"steps must be two positive numbers, the smaller first, not {steps!r}")
    for step in steps:
        check_number("each of steps", step, STEP_SIZE)
    if steps[0] > steps[1]:
        raise ValueError(f"steps must be two positive numbers, the smaller first, not {steps!r}")


class Recurrence(nn.Module):
    """`recurrent_attention` with coefficients from x, or constants, one a head."""

    def __init__(
        self,
        *,
        alpha: Gate | tuple[float, ...] | None = None,
        beta: Gate | None = None,
        gamma: Gate | None = None,
        eta: Gate | None = None,
        erases: bool = False,
        averages: bool = False,
        feature_map: FeatureMap | None = None,
        normalize: bool = False,
    ) -> None:
        super().__init__()
        self.alpha = alpha if isinstance(alpha, nn.Module) else None
        # numbers, not a buffer: a module cast to 16 bits would round 1 - 2⁻¹² to 1
        self.constant_alpha = alpha if isinstance(alpha, tuple) else None
        self.beta, self.gamma, self.eta = beta, gamma, eta
        self.erases, self.averages = erases, averages
        self.feature_map, self.normalize = feature_map, normalize

    def forward(self, q: Tensor, k: Tensor, v: Tensor, at: Situation) -> tuple[Tensor, Any]:
        coefficients, scale = self.coefficients(at), self.scale(q.shape[-1])
        if not at.causal:
            return scale * self._both_ways(q, k, v, coefficients, at), None
        found = recurrent_attention(
            q,
            k,
            v,
            **coefficients,
            feature_map=self.feature_map,
            normalize=self.normalize,
            key_mask=at.key_mask,
            reset=at.reset,
            state=at.state,
            return_state=at.return_state,
        )
        y, state = found if at.return_state else (found, None)
        return scale * y, state

    def scale(self, width: int) -> float:
        """What the output is multiplied by: without a denominator it would grow with the width of heads."""
        return 1.0 if self.normalize else width**-0.5

    def coefficients(self, at: Situation) -> dict[str, Any]:
        """The coefficients by their names in `recurrent_attention`."""
        x, gates = tokens_of(at), self.gates()
        return self.combined(dict(zip(gates, open_gates(list(gates.values()), x), strict=True)), x.device)

    def gates(self) -> dict[str, Any]:
        """What x decides, by the name of the coefficient."""
        named = {"alpha": self.alpha, "beta": self.beta, "gamma": self.gamma, "eta": self.eta}
        return {name: gate for name, gate in named.items() if gate is not None}

    def combined(self, opened: dict[str, Any], device: torch.device) -> dict[str, Any]:
        """All coefficients, from those that x has decided."""
        made = dict(opened)
        if self.constant_alpha is not None:
            wide = torch.float32 if device.type == "mps" else torch.float64
            made["alpha"] = torch.tensor(self.constant_alpha, dtype=wide, device=device)
        if self.averages:
            made["eta"] = (1 - made["beta"]) * made["eta"]
        if self.erases:  # what a key recalls from a state that has decayed
            made["delta"] = made.get("alpha", 1.0)
        return made

    def _both_ways(self, q: Tensor, k: Tensor, v: Tensor, coefficients: dict[str, Any], at: Situation) -> Tensor:
        """Half of the heads forwards, half backwards, side by side in the batch."""
        b, h, n, _ = q.shape
        if h % 2:
            raise ValueError(f"without causal order half of the heads run backwards, so heads must be even, not {h}")

        def fold(x: Tensor) -> Tensor:
            return torch.cat([x[:, : h // 2], x[:, h // 2 :].flip(2)])

        def fold_coefficient(x: Any) -> Any:
            if not isinstance(x, Tensor):
                return x
            return fold(x[None, :, None].expand(b, h, n) if x.ndim == 1 else x)

        def fold_mask(mask: Tensor | None, turned: Tensor | None) -> Tensor | None:
            return None if mask is None or turned is None else torch.cat([mask, turned])

        turned = at.reversed()
        y = recurrent_attention(
            fold(q),
            fold(k),
            fold(v),
            **{name: fold_coefficient(x) for name, x in coefficients.items()},
            feature_map=self.feature_map,
            normalize=self.normalize,
            key_mask=fold_mask(at.key_mask, turned.key_mask),
            reset=fold_mask(at.reset, turned.reset),
        )
        return torch.cat([y[:b], y[b:].flip(2)], 1)
