"""The paper's equations as pure functions; each file is one mechanism."""

from .adaptive import RULES, adaptive_momentum
from .connection import difference_connection, momentum_connection
from .feature_maps import elu_plus_one
from .heavy_ball import heavy_ball_step, optimal_momentum
from .softmax import softmax_attention
from .state import (
    CacheState,
    LinearState,
    MomentumState,
    RecurrentState,
    detach_state,
    load_state,
    map_state,
    move_state,
    reorder_state,
    state_tensors,
)

__all__ = [
    "RULES",
    "CacheState",
    "LinearState",
    "MomentumState",
    "RecurrentState",
    "adaptive_momentum",
    "detach_state",
    "difference_connection",
    "elu_plus_one",
    "heavy_ball_step",
    "load_state",
    "map_state",
    "momentum_connection",
    "move_state",
    "optimal_momentum",
    "reorder_state",
    "softmax_attention",
    "state_tensors",
]
