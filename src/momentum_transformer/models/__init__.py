"""Models built of blocks."""

from .classifier import PairClassifier, SequenceClassifier
from .encoder import Encoder, EncoderState

__all__ = ["Encoder", "EncoderState", "PairClassifier", "SequenceClassifier"]
