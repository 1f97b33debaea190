"""Hugging Face Transformers (extra `hf`): its linear-attention models on our kernels, ours in its Auto classes."""

from .acceleration import accelerate, restore
from .cache import MomentumCache
from .configuration import MomentumConfig
from .conversion import to_native, to_transformers
from .modeling import MomentumForCausalLM, MomentumForSequenceClassification, MomentumModel
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
