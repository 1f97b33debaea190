"""A model as plain values that fit in a configuration file: how its tokens mix, how its layers connect, its sizes."""

from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import torch

from ..layers.family_mixers import RetentionAttention
from ..layers.paper_mixers import SoftmaxAttention
from ..layers.parts import Tail
from ..layers.presets import ModernBlock
from ..layers.residual import AdaptiveMomentumResidual, MomentumResidual, PlainResidual, Residual
from ..layers.short_convolution import ShortConvolution
from ..layers.situation import Mixer
from ..models.encoder import Encoder
from ..training.allocator import available_memory
from .configuration import ConfigurationError
from .named_models import MIXERS

TAILS = {"on": Tail(), "norm": Tail(gate="none"), "gate": Tail(norm=False)}
HIDDEN_MULTIPLE = 4  # of the features of a feed-forward network that was made to fit
MOST = {"depth": 1_000, "width": 65_536, "heads": 4_096, "feedforward": 1_048_576, "features": 1_048_576}
MOST |= {"buckets": 65_536, "rounds": 1_000, "chunk_size": 1_048_576}
# settings of every model, and of each connection; those of a mixer are in its row of named_models.py
ALWAYS = (
    *("attention", "residual", "depth", "width", "heads", "feedforward", "budget", "dropout", "block", "norm"),
    *("activation", "convolution", "tail"),  # a mixer without such a part refuses it by itself
)
CONNECTIONS: dict[str, tuple[str, ...]] = {
    "plain": (),
    "momentum": ("connection_beta", "connection_gamma"),
    "adaptive": ("connection_gamma", "delta", "rule"),
}
HYBRID = 4  # every fourth layer of a hybrid is softmax attention; of fewer layers, the last one


@dataclass(frozen=True)
class ModelConfig:
    attention: str = "momentum"
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
    convolution: Literal["own", "on", "off"] = "own"  # own: as the mixer has it by itself
    tail: Literal["own", "on", "norm", "gate", "off"] = "own"  # norm, gate: this part of it alone
    negative: bool = False  # the delta rule may reflect
    decay: bool = True  # of gated-delta and momentum-delta
    decay_steps: tuple[float, float] = (0.001, 0.1)
    start_beta: float = 0.5  # from which momentum-delta learns its own
    depth: int = 4
    width: int = 256
    heads: int = 8
    feedforward: int = 1024
    # softmax: less feed-forward, so that there are as many parameters as with bare softmax attention
    budget: Literal["own", "softmax"] = "own"
    dropout: float = 0.1
    block: Literal["paper", "modern"] = "paper"  # modern: RMSNorm before each part, SwiGLU
    norm: Literal["post", "pre"] = "post"  # of the paper's block
    activation: Literal["relu", "gelu"] = "relu"  # likewise

    def __post_init__(self) -> None:
        if self.attention not in MIXERS:
            known = ", ".join(map(repr, MIXERS))
            raise ConfigurationError(f"model.attention must be one of {known}, not {self.attention!r}")
        for name, most in MOST.items():
            if not 0 <= getattr(self, name) <= most:
                raise ValueError(f"model.{name} must be 0 to {most:,}, not {getattr(self, name):,}")
        if self.block == "modern" and (self.norm, self.activation) != ("post", "relu"):
            raise ValueError("model.norm and model.activation are for model.block=paper; the modern one has its own")
        self.mixer()  # refuses impossible coefficients
        self.connection()

    def applies(self, setting: str) -> bool:
        """Whether a setting changes this model: those of other mixers and other connections do nothing."""
        return setting in ALWAYS or setting in self.own_settings()

    def own_settings(self) -> tuple[str, ...]:
        """The settings of its mixer and of its connection."""
        return (*MIXERS[self.attention].settings, *CONNECTIONS[self.residual])

    def mixer(self, length: int = 1) -> Mixer:
        """`length` is that of the longest sequence, which Linformer needs to know."""
        return self._with_parts(MIXERS[self.attention].mixer(self, length))

    def _with_parts(self, mixer: Any) -> Mixer:
        """The mixer with its parts switched on or off."""
        wishes: dict[str, tuple[str, Any]] = {
            "convolution": (self.convolution, ShortConvolution() if self.convolution == "on" else None),
            "tail": (self.tail, TAILS.get(self.tail)),
        }
        for name, (wish, part) in wishes.items():
            if wish == "own":
                continue
            if not hasattr(mixer, name):
                raise ValueError(f"model.{name} must be own for {self.attention}, which has no such part, not {wish}")
            mixer = replace(mixer, **{name: part})
        return cast(Mixer, mixer)

    def mixers(self, length: int = 1) -> list[Mixer]:
        """One for each layer."""
        mixers = [self.mixer(length)] * self.depth
        if self.attention == "hybrid":
            convolution = ShortConvolution() if self.convolution == "on" else None
            softmax = SoftmaxAttention(self.attention_dropout, convolution)
            for layer in range(min(HYBRID, self.depth) - 1, self.depth, HYBRID):
                mixers[layer] = softmax
        return mixers

    def knows_order(self) -> bool:
        """Whether a convolution or a decay lets a layer tell what came when; without, it needs positions."""
        for mixer in self.mixers():
            decays = isinstance(mixer, RetentionAttention) or getattr(mixer, "steps", None) is not None
            if decays or getattr(mixer, "convolution", None) is not None:
                return True
        return False

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
        needed = 4 * self.depth * self.width * (4 * self.width + 2 * self.feedforward)
        if needed > (free := available_memory()):
            raise ValueError(
                f"a model of depth {self.depth}, width {self.width:,} and feedforward {self.feedforward:,} needs "
                f"{needed / 2**30:,.1f} GB for its weights alone, and {free / 2**30:,.1f} GB are free; make it smaller"
            )
        return Encoder(
            self.depth,
            self.width,
            self.heads,
            attention=self.mixers(length),
            residual=self.connection(),
            causal=causal,
            feedforward=self.feedforward if self.budget == "own" else self._hidden(causal=causal, length=length),
            dropout=self.dropout,
            norm=self.norm,
            activation=self.activation,
            block=ModernBlock() if self.block == "modern" else None,
        )

    def _hidden(self, *, causal: bool, length: int) -> int:
        """Features of the feed-forward networks that leave as many parameters as bare softmax attention has."""
        bare = replace(self, attention="softmax", convolution="own", tail="own", scale_by_length=False)
        with torch.device("meta"):
            more, wanted = (
                sum(parameter.numel() for parameter in encoder.parameters())
                for encoder in (
                    replace(one, budget="own").encoder(causal=causal, length=length) for one in (self, bare)
                )
            )
        each = HIDDEN_MULTIPLE * self.depth * (2 * self.width + 1)
        hidden = self.feedforward - HIDDEN_MULTIPLE * round((more - wanted) / each)
        if hidden < 1:
            raise ValueError(f"model.budget: {self.attention} has more parameters than softmax with its feed-forward")
        return hidden
