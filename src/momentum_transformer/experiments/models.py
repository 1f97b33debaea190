"""The models of the paper by name, as plain values that fit in a configuration file."""

from dataclasses import dataclass, replace
from typing import Literal

from ..layers.linformer import LinformerAttention
from ..layers.mixers import LinearAttention, Mixer, MomentumAttention, SoftmaxAttention
from ..layers.performer import PerformerAttention
from ..layers.reformer import ReformerAttention
from ..layers.residual import AdaptiveMomentumResidual, MomentumResidual, PlainResidual, Residual
from ..models.encoder import Encoder
from ..ops.feature_maps import elu_plus_one, length_scaled
from .configuration import nearest

MODELS = ("softmax", "reformer", "linear", "momentum", "momentum-connection", "adaptive-momentum")
# the order and the colours of every table and figure
ALL_MODELS = ("softmax", "reformer", "performer", "linformer", *MODELS[2:])


@dataclass(frozen=True)
class ModelConfig:
    attention: Literal["softmax", "reformer", "performer", "linformer", "linear", "momentum"] = "momentum"
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
    features: int = 256  # of performer and linformer
    redraw: int = 1000
    denominator: bool = True
    scale_by_length: bool = False
    depth: int = 4
    width: int = 256
    heads: int = 8
    feedforward: int = 1024
    dropout: float = 0.1
    norm: Literal["post", "pre"] = "post"
    activation: Literal["relu", "gelu"] = "relu"

    def __post_init__(self) -> None:
        self.mixer()  # refuses impossible coefficients
        self.connection()

    def mixer(self, length: int = 1) -> Mixer:
        """`length` is that of the longest sequence, which Linformer needs to know."""
        feature_map = length_scaled if self.scale_by_length else elu_plus_one
        match self.attention:
            case "softmax":
                return SoftmaxAttention(dropout=self.attention_dropout)
            case "reformer":
                return ReformerAttention(buckets=self.buckets, rounds=self.rounds, chunk_size=self.chunk_size)
            case "performer":
                return PerformerAttention(features=self.features, redraw=self.redraw)
            case "linformer":
                return LinformerAttention(length, features=min(self.features, length))
            case "linear":
                return LinearAttention(feature_map, self.denominator)
            case "momentum":
                return MomentumAttention(self.beta, self.gamma, self.weighting, feature_map, self.denominator)

    def connection(self) -> Residual:
        match self.residual:
            case "plain":
                return PlainResidual()
            case "momentum":
                return MomentumResidual(beta=self.connection_beta, gamma=self.connection_gamma)
            case "adaptive":
                return AdaptiveMomentumResidual(gamma=self.connection_gamma, delta=self.delta, rule=self.rule)

    def encoder(self, *, causal: bool, length: int = 1) -> Encoder:
        if causal and self.scale_by_length:
            raise ValueError("model.scale_by_length needs the whole sequence at once: it cannot be causal")
        return Encoder(
            self.depth,
            self.width,
            self.heads,
            attention=self.mixer(length),
            residual=self.connection(),
            causal=causal,
            feedforward=self.feedforward,
            dropout=self.dropout,
            norm=self.norm,
            activation=self.activation,
        )


def named(config: ModelConfig, name: str) -> ModelConfig:
    """The same sizes and coefficients, with the attention and connection that the name stands for."""
    match name:
        case "softmax" | "reformer" | "performer" | "linformer" | "linear" | "momentum":
            return replace(config, attention=name, residual="plain")
        case "momentum-connection":
            return replace(config, attention="momentum", residual="momentum")
        case "adaptive-momentum":
            return replace(config, attention="momentum", residual="adaptive")
    raise nearest("model", name, ALL_MODELS)
