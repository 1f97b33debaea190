"""Mixers, residual rules, and the one block that takes them."""

from .block import Attention, Block, FeedForward, HighwayFeedForward
from .convolution import ShortConvolution
from .family import (
    DeltaAttention,
    GatedDeltaAttention,
    GatedMomentumAttention,
    MomentumDeltaAttention,
    RetentionAttention,
)
from .mixers import (
    LearnedMomentumAttention,
    LinearAttention,
    MomentumAttention,
    SoftmaxAttention,
    WindowAttention,
)
from .parts import Tail
from .residual import AdaptiveMomentumResidual, DifferenceResidual, MomentumResidual, PlainResidual, Residual
from .situation import Mixer, Situation

__all__ = [
    "AdaptiveMomentumResidual",
    "Attention",
    "Block",
    "DeltaAttention",
    "DifferenceResidual",
    "FeedForward",
    "GatedDeltaAttention",
    "GatedMomentumAttention",
    "HighwayFeedForward",
    "LearnedMomentumAttention",
    "LinearAttention",
    "Mixer",
    "MomentumAttention",
    "MomentumDeltaAttention",
    "MomentumResidual",
    "PlainResidual",
    "Residual",
    "RetentionAttention",
    "ShortConvolution",
    "Situation",
    "SoftmaxAttention",
    "Tail",
    "WindowAttention",
]
