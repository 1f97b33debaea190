"""Models built of blocks."""

from .autoregressive_translator import AutoregressiveTranslator
from .classifier import PairClassifier, SequenceClassifier
from .encoder import Encoder, EncoderState
from .nonautoregressive_translator import NonAutoregressiveTranslator
from .rewind import Rewind, RewindState

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
