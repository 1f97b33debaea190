"""What can be set of each mixer, as plain values for a configuration file; a row of `named_models.py` names its kind.

No setting has a name that a model, a connection or a block has, too: `--set model.beta=0.3` names no group.
"""

from dataclasses import dataclass
from typing import Literal

from ..layers.family_mixers import (
    DECAY_STEPS,
    DeltaAttention,
    GatedDeltaAttention,
    GatedMomentumAttention,
    MomentumDeltaAttention,
    RetentionAttention,
)
from ..layers.linformer import LinformerAttention
from ..layers.paper_mixers import LinearAttention, MomentumAttention, SoftmaxAttention
from ..layers.performer import PerformerAttention
from ..layers.reformer import ReformerAttention
from ..layers.situation import Mixer
from ..ops.feature_maps import FeatureMap, elu_plus_one, length_scaled


@dataclass(frozen=True)
class SoftmaxSettings:
    attention_dropout: float = 0.1

    def make(self, length: int) -> Mixer:
        return SoftmaxAttention(dropout=self.attention_dropout)


@dataclass(frozen=True)
class ReformerSettings:
    buckets: int = 32
    rounds: int = 4
    chunk_size: int = 32

    def make(self, length: int) -> Mixer:
        return ReformerAttention(buckets=self.buckets, rounds=self.rounds, chunk_size=self.chunk_size)


@dataclass(frozen=True)
class PerformerSettings:
    features: int = 256
    redraw: int = 1000

    def make(self, length: int) -> Mixer:
        return PerformerAttention(features=self.features, redraw=self.redraw)


@dataclass(frozen=True)
class LinformerSettings:
    features: int = 256

    def make(self, length: int) -> Mixer:
        return LinformerAttention(length, features=min(self.features, length))


@dataclass(frozen=True)
class LinearSettings:
    denominator: bool = True
    scale_by_length: bool = False

    def make(self, length: int) -> Mixer:
        return LinearAttention(_feature_map(self.scale_by_length), self.denominator)


@dataclass(frozen=True)
class MomentumSettings:
    beta: float = 0.1
    gamma: float = 1.0
    weighting: Literal["relative", "terminal"] = "relative"
    denominator: bool = True
    scale_by_length: bool = False

    def make(self, length: int) -> Mixer:
        feature_map = _feature_map(self.scale_by_length)
        return MomentumAttention(self.beta, self.gamma, self.weighting, feature_map, self.denominator)


@dataclass(frozen=True)
class GatedMomentumSettings:
    beta: float = 0.1
    gamma: float = 1.0
    scale_by_length: bool = False

    def make(self, length: int) -> Mixer:
        return GatedMomentumAttention(self.beta, self.gamma, _feature_map(self.scale_by_length))


@dataclass(frozen=True)
class RetentionSettings:
    """It has no settings."""

    def make(self, length: int) -> Mixer:
        return RetentionAttention()


@dataclass(frozen=True)
class DeltaSettings:
    negative: bool = False  # it may reflect

    def make(self, length: int) -> Mixer:
        return DeltaAttention(self.negative)


@dataclass(frozen=True)
class GatedDeltaSettings:
    negative: bool = False
    decay: bool = True
    decay_steps: tuple[float, float] = DECAY_STEPS

    def make(self, length: int) -> Mixer:
        return GatedDeltaAttention(self.negative, self.decay_steps if self.decay else None)


@dataclass(frozen=True)
class MomentumDeltaSettings:
    start_beta: float = 0.5  # from which it learns its own
    negative: bool = False
    decay: bool = True
    decay_steps: tuple[float, float] = DECAY_STEPS

    def make(self, length: int) -> Mixer:
        return MomentumDeltaAttention(self.start_beta, self.negative, self.decay_steps if self.decay else None)


@dataclass(frozen=True)
class HybridSettings:
    """Of the gated delta rule, and of the layers that are softmax attention."""

    negative: bool = False
    decay: bool = True
    decay_steps: tuple[float, float] = DECAY_STEPS
    attention_dropout: float = 0.1

    def make(self, length: int) -> Mixer:
        return GatedDeltaSettings(self.negative, self.decay, self.decay_steps).make(length)


def _feature_map(scale_by_length: bool) -> FeatureMap:
    return length_scaled if scale_by_length else elu_plus_one
