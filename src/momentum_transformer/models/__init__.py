"""Models built of blocks."""

from .autoregressive_translator import AutoregressiveTranslator
from .classifier import PairClassifier, SequenceClassifier
from .encoder import Encoder, EncoderState
from .rewind import Rewind, RewindState
from .translator import NonAutoregressiveTranslator

__all__ = [
    "AutoregressiveTranslator",
    "Encoder",
    "EncoderState",
    "NonAutoregressiveTranslator",
    "PairClassifier",
    "Rewind",
    "RewindState",
    "SequenceClassifier",
]
