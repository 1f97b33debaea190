"""Exact momentum attention in linear time: every equation of the Momentum Transformer, in every form."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from .attention import linear_attention, momentum_attention, recurrent_attention
    from .backend.choose import backends
    from .context import context_parallel
    from .layers.family_mixers import (
        DeltaAttention,
        GatedDeltaAttention,
        GatedMomentumAttention,
        MomentumDeltaAttention,
        RetentionAttention,
    )
    from .layers.linformer import LinformerAttention
    from .layers.paper_mixers import LinearAttention, MomentumAttention, SoftmaxAttention, WindowAttention
    from .layers.performer import PerformerAttention
    from .layers.reformer import ReformerAttention
    from .layers.residual import AdaptiveMomentumResidual, MomentumResidual, PlainResidual
    from .layers.short_convolution import ShortConvolution
    from .loading import load
    from .models.classifier import SequenceClassifier
    from .models.encoder import Encoder
    from .models.language_model import LanguageModel
    from .models.pixel_model import PixelModel
    from .models.rewind import Rewind
    from .ops.adaptive import adaptive_momentum
    from .ops.connection import momentum_connection
    from .ops.documents import cu_seqlens
    from .ops.feature_maps import elu_plus_one
    from .ops.heavy_ball import optimal_momentum
    from .ops.softmax import softmax_attention
    from .ops.state import MomentumState, RecurrentState

# where each name lives; loaded at first use, so that `momentum --help` need not wait for torch
_HOMES = {
    ".attention": ("linear_attention", "momentum_attention", "recurrent_attention"),
    ".backend.choose": ("backends",),
    ".context": ("context_parallel",),
    ".layers.short_convolution": ("ShortConvolution",),
    ".layers.family_mixers": (
        "DeltaAttention",
        "GatedDeltaAttention",
        "GatedMomentumAttention",
        "MomentumDeltaAttention",
        "RetentionAttention",
    ),
    ".layers.linformer": ("LinformerAttention",),
    ".layers.paper_mixers": ("LinearAttention", "MomentumAttention", "SoftmaxAttention", "WindowAttention"),
    ".layers.performer": ("PerformerAttention",),
    ".layers.reformer": ("ReformerAttention",),
    ".layers.residual": ("AdaptiveMomentumResidual", "MomentumResidual", "PlainResidual"),
    ".loading": ("load",),
    ".models.classifier": ("SequenceClassifier",),
    ".models.encoder": ("Encoder",),
    ".models.language_model": ("LanguageModel",),
    ".models.pixel_model": ("PixelModel",),
    ".models.rewind": ("Rewind",),
    ".ops.adaptive": ("adaptive_momentum",),
    ".ops.connection": ("momentum_connection",),
    ".ops.documents": ("cu_seqlens",),
    ".ops.feature_maps": ("elu_plus_one",),
    ".ops.heavy_ball": ("optimal_momentum",),
    ".ops.softmax": ("softmax_attention",),
    ".ops.state": ("MomentumState", "RecurrentState"),
}

__all__ = [
    "AdaptiveMomentumResidual",
    "DeltaAttention",
    "Encoder",
    "GatedDeltaAttention",
    "GatedMomentumAttention",
    "LanguageModel",
    "LinearAttention",
    "LinformerAttention",
    "MomentumAttention",
    "MomentumDeltaAttention",
    "MomentumResidual",
    "MomentumState",
    "PerformerAttention",
    "PixelModel",
    "PlainResidual",
    "RecurrentState",
    "ReformerAttention",
    "RetentionAttention",
    "Rewind",
    "SequenceClassifier",
    "ShortConvolution",
    "SoftmaxAttention",
    "WindowAttention",
    "__version__",
    "adaptive_momentum",
    "backends",
    "context_parallel",
    "cu_seqlens",
    "elu_plus_one",
    "linear_attention",
    "load",
    "momentum_attention",
    "momentum_connection",
    "optimal_momentum",
    "recurrent_attention",
    "softmax_attention",
]


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            found = getattr(import_module(home, __name__), name)
            globals()[name] = found  # the next look-up is a plain one
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
