"""The models of the paper by name, as plain values that fit in a configuration file."""

from dataclasses import dataclass, replace
from typing import Literal

from ..layers.mixers import LinearAttention, Mixer, MomentumAttention, SoftmaxAttention
from ..layers.reformer import ReformerAttention
from ..layers.residual import AdaptiveMomentumResidual, MomentumResidual, PlainResidual, Residual
from ..models.encoder import Encoder
from .configuration import nearest

# the order and the colours of every table and figure
MODELS = ("softmax", "reformer", "linear", "momentum", "momentum-connection", "adaptive-momentum")


@dataclass(frozen=True)
class ModelConfig:
    attention: Literal["softmax", "reformer", "linear", "momentum"] = "momentum"
    residual: Literal["plain", "momentum", "adaptive"] = "plain"
    beta: float = 0.1
    gamma: float = 1.0
    weighting: Literal["relative", "terminal"] = "relative"
    connection_beta: float = 0.9
    connection_gamma: float = 1.0
    delta: float = 1e-3
    rule: str = "paper"
    attention_dropout: float = 0.1
    buckets: int = 32
    rounds: int = 4
    chunk_size: int = 32
    depth: int = 4
    width: int = 256
    heads: int = 8
    feedforward: int = 1024
    dropout: float = 0.1

    def __post_init__(self) -> None:
        self.mixer()  # refuses impossible coefficients
        self.connection()

    def mixer(self) -> Mixer:
        match self.attention:
            case "softmax":
                return SoftmaxAttention(dropout=self.attention_dropout)
            case "reformer":
                return ReformerAttention(buckets=self.buckets, rounds=self.rounds, chunk_size=self.chunk_size)
            case "linear":
                return LinearAttention()
            case "momentum":
                return MomentumAttention(beta=self.beta, gamma=self.gamma, weighting=self.weighting)

    def connection(self) -> Residual:
        match self.residual:
            case "plain":
                return PlainResidual()
            case "momentum":
                return MomentumResidual(beta=self.connection_beta, gamma=self.connection_gamma)
            case "adaptive":
                return AdaptiveMomentumResidual(gamma=self.connection_gamma, delta=self.delta, rule=self.rule)

    def encoder(self, *, causal: bool) -> Encoder:
        return Encoder(
            self.depth,
            self.width,
            self.heads,
            attention=self.mixer(),
            residual=self.connection(),
            causal=causal,
            feedforward=self.feedforward,
            dropout=self.dropout,
        )


def named(config: ModelConfig, name: str) -> ModelConfig:
    """The same sizes and coefficients, with the attention and connection that the name stands for."""
    match name:
        case "softmax" | "reformer" | "linear" | "momentum":
            return replace(config, attention=name, residual="plain")
        case "momentum-connection":
            return replace(config, attention="momentum", residual="momentum")
        case "adaptive-momentum":
            return replace(config, attention="momentum", residual="adaptive")
    raise nearest("model", name, MODELS)
