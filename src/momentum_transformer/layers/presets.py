"""Named kinds of the one block: small frozen objects that say which norms and which feed-forward network it has."""

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from ..ops.checks import check_choice
from .block import Activation, FeedForward, GatedFeedForward, HighwayFeedForward, Norm

EPS = 1e-5  # of RMSNorm
MULTIPLE = 4  # of the features inside a gated network


@dataclass(frozen=True)
class PaperBlock:
    """LayerNorm behind attention and feed-forward network, or before them, and two linear maps in the latter."""

    norm: Norm = "post"
    activation: Activation = "relu"

    def __post_init__(self) -> None:
        check_choice("norm", self.norm, ("post", "pre"))

    def build_norm(self, width: int) -> nn.Module:
        return nn.LayerNorm(width)

    def build_feedforward(self, width: int, hidden: int, dropout: float) -> nn.Module:
        return FeedForward(width, hidden, activation=self.activation, dropout=dropout)


@dataclass(frozen=True)
class ModernBlock:
    """RMSNorm before attention and feed-forward network, and SwiGLU in the latter.

    The network has three matrices, and two thirds of `hidden` features: as many parameters as two matrices have.
    """

    norm: ClassVar[Norm] = "pre"

    def build_norm(self, width: int) -> nn.Module:
        return nn.RMSNorm(width, eps=EPS)

    def build_feedforward(self, width: int, hidden: int, dropout: float) -> nn.Module:
        return GatedFeedForward(width, max(1, round(hidden / 6)) * MULTIPLE, dropout=dropout)


@dataclass(frozen=True)
class HighwayBlock:
    """LayerNorm behind each attention and behind a highway network: a translator's layers."""

    norm: ClassVar[Norm] = "post"

    def build_norm(self, width: int) -> nn.Module:
        return nn.LayerNorm(width)

    def build_feedforward(self, width: int, hidden: int, dropout: float) -> nn.Module:
        return HighwayFeedForward(width, hidden, dropout=dropout)
