"""Exact momentum attention in linear time: every equation of the Momentum Transformer, in every form."""

from .layers.mixers import LinearAttention, MomentumAttention, SoftmaxAttention
from .layers.residual import AdaptiveMomentumResidual, MomentumResidual, PlainResidual
from .models.encoder import Encoder
from .ops.adaptive import adaptive_momentum
from .ops.attention import linear_attention, momentum_attention
from .ops.connection import momentum_connection
from .ops.feature_maps import elu_plus_one
from .ops.heavy_ball import optimal_momentum
from .ops.softmax import softmax_attention
from .ops.state import MomentumState
from .version import __version__

__all__ = [
    "AdaptiveMomentumResidual",
    "Encoder",
    "LinearAttention",
    "MomentumAttention",
    "MomentumResidual",
    "MomentumState",
    "PlainResidual",
    "SoftmaxAttention",
    "__version__",
    "adaptive_momentum",
    "elu_plus_one",
    "linear_attention",
    "momentum_attention",
    "momentum_connection",
    "optimal_momentum",
    "softmax_attention",
]
