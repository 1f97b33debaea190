"""A model as plain values that fit in a configuration file: its sizes, and the settings of what it is made of.

`attention`, `residual` and `block` choose its mixer, its connection and its preset, and thereby which settings those
have; nothing is in a configuration that does not apply to its model.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from itertools import combinations
from typing import Any, Literal, Protocol, cast

import torch

from ..layers.block import Preset
from ..layers.family_mixers import DeltaAttention, GatedDeltaAttention, MomentumDeltaAttention
from ..layers.named_model import MixerSettings
from ..layers.paper_mixers import SoftmaxAttention
from ..layers.parts import Tail
from ..layers.presets import ModernBlock, PaperBlock
from ..layers.residual import AdaptiveMomentumResidual, MomentumResidual, PlainResidual, Residual
from ..layers.short_convolution import ShortConvolution
from ..layers.situation import Mixer
from ..models.encoder import Encoder
from ..training.allocator import available_memory
from .configuration import from_json, nearest, not_among, paths
from .mixer_settings import HybridSettings
from .named_models import ALL_MODELS, BY_NAME, MIXERS

TAILS = {"on": Tail(), "norm": Tail(gate="none"), "gate": Tail(norm=False)}
HIDDEN_MULTIPLE = 4  # of the features of a feed-forward network that fits a budget
MOST = {"depth": 1_000, "width": 65_536, "heads": 4_096, "feedforward": 1_048_576, "features": 1_048_576}
MOST |= {"buckets": 65_536, "rounds": 1_000, "chunk_size": 1_048_576}
# Retention is not among them: its decays are fixed, and so slow that 64 tokens look nearly alike to it.
ORDERED = (DeltaAttention, GatedDeltaAttention, MomentumDeltaAttention)
HYBRID = 4  # every fourth layer of a hybrid is softmax attention; of fewer layers, the last one


class ConnectionSettings(Protocol):
    def make(self) -> Residual: ...


@dataclass(frozen=True)
class PlainConnection:
    """It has no settings."""

    def make(self) -> Residual:
        return PlainResidual()


@dataclass(frozen=True)
class MomentumConnection:
    connection_beta: float = 0.9
    connection_gamma: float = 1.0

    def make(self) -> Residual:
        return MomentumResidual(beta=self.connection_beta, gamma=self.connection_gamma)


@dataclass(frozen=True)
class AdaptiveConnection:
    connection_gamma: float = 1.0
    delta: float = 1e-3
    rule: str = "paper"

    def make(self) -> Residual:
        return AdaptiveMomentumResidual(gamma=self.connection_gamma, delta=self.delta, rule=self.rule)


# each group: the setting that chooses its kind, and the kinds
GROUPS: dict[str, tuple[str, dict[str, type]]] = {
    "mixer": ("attention", {name: row.settings for name, row in MIXERS.items()}),
    "connection": (
        "residual",
        {"plain": PlainConnection, "momentum": MomentumConnection, "adaptive": AdaptiveConnection},
    ),
    "preset": ("block", {"paper": PaperBlock, "modern": ModernBlock}),
}


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Made by `model_of` or `named`, which give each group the kind that was chosen."""

    attention: str = "momentum"
    residual: Literal["plain", "momentum", "adaptive"] = "plain"
    block: Literal["paper", "modern"] = "paper"  # modern: RMSNorm before each part, SwiGLU
    depth: int = 4
    width: int = 256
    heads: int = 8
    feedforward: int = 1024
    # softmax: less feed-forward, so that there are as many parameters as with bare softmax attention
    budget: Literal["own", "softmax"] = "own"
    dropout: float = 0.1
    convolution: Literal["own", "on", "off"] = "own"  # own: as the mixer has it by itself
    tail: Literal["own", "on", "norm", "gate", "off"] = "own"  # norm, gate: this part of it alone
    mixer: MixerSettings
    connection: ConnectionSettings
    preset: Preset

    def __post_init__(self) -> None:
        for group, kind in self.groups(vars(self)).items():
            if type(getattr(self, group)) is not kind:
                raise ValueError(f"model.{group} must be {kind.__name__}, not {type(getattr(self, group)).__name__}")
        for name, value in paths(self).items():
            if name in MOST and not 0 <= value <= MOST[name]:
                raise ValueError(f"model.{name} must be 0 to {MOST[name]:,}, not {value:,}")
        self.make_mixer()  # refuses impossible coefficients
        self.connection.make()

    @classmethod
    def groups(cls, values: Mapping[str, Any]) -> dict[str, type]:
        found = {}
        for group, (name, kinds) in GROUPS.items():
            chosen = values.get(name, getattr(cls, name))
            if not isinstance(chosen, str) or chosen not in kinds:
                raise not_among(f"model.{name}", chosen, kinds)
            found[group] = kinds[chosen]
        return found

    @classmethod
    def of_any_kind(cls) -> set[str]:
        return {field.name for _, kinds in GROUPS.values() for kind in kinds.values() for field in fields(kind)}

    def own_settings(self) -> tuple[str, ...]:
        """The settings of its mixer and of its connection."""
        return (*paths(self.mixer), *paths(self.connection))

    def having(self, **settings: Any) -> "ModelConfig":
        """The same with these settings; those that only another kind of model has change nothing."""
        return model_of(paths(self) | settings)

    def make_mixer(self, length: int = 1) -> Mixer:
        """`length` is that of the longest sequence, which Linformer needs to know."""
        return self._with_parts(self.mixer.make(length))

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
        mixers = [self.make_mixer(length)] * self.depth
        if isinstance(self.mixer, HybridSettings):
            convolution = ShortConvolution() if self.convolution == "on" else None
            softmax = SoftmaxAttention(self.mixer.attention_dropout, convolution)
            for layer in range(min(HYBRID, self.depth) - 1, self.depth, HYBRID):
                mixers[layer] = softmax
        return mixers

    def knows_order(self) -> bool:
        """Whether the delta rule lets a layer tell what came when; without it, the model needs positions."""
        return any(isinstance(mixer, ORDERED) for mixer in self.mixers())

    def encoder(self, *, causal: bool, length: int = 1, beside: int = 0) -> Encoder:
        """`beside`: parameters around the encoder that the same model with softmax attention would not have."""
        if causal and getattr(self.mixer, "scale_by_length", False):
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
            residual=self.connection.make(),
            causal=causal,
            feedforward=self.feedforward if self.budget == "own" else self._hidden(causal, length, beside),
            dropout=self.dropout,
            block=self.preset,
        )

    def _hidden(self, causal: bool, length: int, beside: int) -> int:
        """Features of the feed-forward networks that leave as many parameters as bare softmax attention has."""
        bare = self.having(attention="softmax", convolution="own", tail="own")
        with torch.device("meta"):
            more, wanted = (
                sum(parameter.numel() for parameter in encoder.parameters())
                for encoder in (
                    replace(one, budget="own").encoder(causal=causal, length=length) for one in (self, bare)
                )
            )
        each = HIDDEN_MULTIPLE * self.depth * (2 * self.width + 1)
        hidden = self.feedforward - HIDDEN_MULTIPLE * round((more + beside - wanted) / each)
        if hidden < 1:
            raise ValueError(f"model.budget: {self.attention} has more parameters than softmax with its feed-forward")
        return hidden


def check_names() -> None:
    """Refuse a setting whose name stands in two groups, or in a group and in `ModelConfig`: paths name no group."""
    places = [{field.name for field in fields(ModelConfig)}]
    places += [{field.name for kind in kinds.values() for field in fields(kind)} for _, kinds in GROUPS.values()]
    for one, other in combinations(places, 2):
        if shared := ", ".join(one & other):
            raise ValueError(f"a setting needs a name of its own, and {shared} is one of another part of a model")


check_names()


def model_of(settings: Mapping[str, Any]) -> ModelConfig:
    """A model of settings without their groups; those that only another kind of model has are left out."""
    return from_json(ModelConfig, dict(settings), where="model.")


def named(name: str, settings: Mapping[str, Any]) -> ModelConfig:
    """The attention and connection that the name stands for, with its part of the settings."""
    if name not in BY_NAME:
        raise nearest("model", name, ALL_MODELS)
    row = BY_NAME[name]
    return model_of({**settings, "attention": row.attention or name, "residual": row.residual})
