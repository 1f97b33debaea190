"""Hugging Face Transformers (extra `hf`): our models in its Auto classes."""

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
    "to_native",
    "to_transformers",
]
