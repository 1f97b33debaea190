"""Hugging Face Transformers (extra `hf`): its linear-attention models on our kernels."""

from .acceleration import accelerate, restore

__all__ = ["accelerate", "restore"]
