"""Mixers, residual rules, and the one block that takes them."""

from .block import Attention, Block, FeedForward, HighwayFeedForward
from .mixers import (
    LearnedMomentumAttention,
    LinearAttention,
    Mixer,
    MomentumAttention,
    Situation,
    SoftmaxAttention,
)
from .residual import AdaptiveMomentumResidual, DifferenceResidual, MomentumResidual, PlainResidual, Residual

__all__ = [
    "AdaptiveMomentumResidual",
    "Attention",
    "Block",
    "DifferenceResidual",
    "FeedForward",
    "HighwayFeedForward",
    "LearnedMomentumAttention",
    "LinearAttention",
    "Mixer",
    "MomentumAttention",
    "MomentumResidual",
    "PlainResidual",
    "Residual",
    "Situation",
    "SoftmaxAttention",
]
