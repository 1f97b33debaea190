"""Models built of blocks."""

from .encoder import Encoder, EncoderState

__all__ = ["Encoder", "EncoderState"]
