"""Hugging Face Transformers (extra `hf`): its linear-attention models on our kernels, ours in its Auto classes."""

from .acceleration import accelerate, restore
from .conversion import to_native, to_transformers
from .encoder_cache import MomentumCache
from .modeling import MomentumForCausalLM, MomentumForSequenceClassification, MomentumModel
from .momentum_config import MomentumConfig
from .registration import register

register()

__all__ = [
    "MomentumCache",
    "MomentumConfig",
    "MomentumForCausalLM",
    "MomentumForSequenceClassification",
    "MomentumModel",
    "accelerate",
    "restore",
    "to_native",
    "to_transformers",
]
