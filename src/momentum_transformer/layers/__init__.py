"""Mixers, residual rules, and the one block that takes them."""

from .block import Attention, Block, FeedForward, GatedFeedForward, HighwayFeedForward
from .family_mixers import (
    DeltaAttention,
    GatedDeltaAttention,
    GatedMomentumAttention,
    MomentumDeltaAttention,
    RetentionAttention,
)
from .paper_mixers import (
    LearnedMomentumAttention,
    LinearAttention,
    MomentumAttention,
    SoftmaxAttention,
    WindowAttention,
)
from .parts import Tail
from .presets import ModernBlock, PaperBlock
from .residual import AdaptiveMomentumResidual, DifferenceResidual, MomentumResidual, PlainResidual, Residual
from .short_convolution import ShortConvolution
from .situation import Mixer, Situation

__all__ = [
    "AdaptiveMomentumResidual",
    "Attention",
    "Block",
    "DeltaAttention",
    "DifferenceResidual",
    "FeedForward",
    "GatedDeltaAttention",
    "GatedFeedForward",
    "GatedMomentumAttention",
    "HighwayFeedForward",
    "LearnedMomentumAttention",
    "LinearAttention",
    "Mixer",
    "ModernBlock",
    "MomentumAttention",
    "MomentumDeltaAttention",
    "MomentumResidual",
    "PaperBlock",
    "PlainResidual",
    "Residual",
    "RetentionAttention",
    "ShortConvolution",
    "Situation",
    "SoftmaxAttention",
    "Tail",
    "WindowAttention",
]
