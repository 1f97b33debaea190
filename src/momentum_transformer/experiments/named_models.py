"""The models by name, in the order of every table and figure: what each is made of, and how figures draw it."""

from dataclasses import replace
from typing import TYPE_CHECKING

from ..layers.family_mixers import (
    DeltaAttention,
    GatedDeltaAttention,
    GatedMomentumAttention,
    MomentumDeltaAttention,
    RetentionAttention,
)
from ..layers.linformer import LinformerAttention
from ..layers.named_model import NamedModel
from ..layers.paper_mixers import LinearAttention, MomentumAttention, SoftmaxAttention
from ..layers.performer import PerformerAttention
from ..layers.reformer import ReformerAttention
from ..layers.situation import Mixer
from ..ops.feature_maps import FeatureMap, elu_plus_one, length_scaled
from . import added_models
from .configuration import nearest

if TYPE_CHECKING:
    from .model_config import ModelConfig


def _softmax(config: "ModelConfig", length: int) -> Mixer:
    return SoftmaxAttention(dropout=config.attention_dropout)


def _reformer(config: "ModelConfig", length: int) -> Mixer:
    return ReformerAttention(buckets=config.buckets, rounds=config.rounds, chunk_size=config.chunk_size)


def _performer(config: "ModelConfig", length: int) -> Mixer:
    return PerformerAttention(features=config.features, redraw=config.redraw)


def _linformer(config: "ModelConfig", length: int) -> Mixer:
    return LinformerAttention(length, features=min(config.features, length))


def _linear(config: "ModelConfig", length: int) -> Mixer:
    return LinearAttention(_feature_map(config), config.denominator)


def _momentum(config: "ModelConfig", length: int) -> Mixer:
    return MomentumAttention(config.beta, config.gamma, config.weighting, _feature_map(config), config.denominator)


def _gated_momentum(config: "ModelConfig", length: int) -> Mixer:
    return GatedMomentumAttention(config.beta, config.gamma, _feature_map(config))


def _retention(config: "ModelConfig", length: int) -> Mixer:
    return RetentionAttention()


def _delta(config: "ModelConfig", length: int) -> Mixer:
    return DeltaAttention(config.negative)


def _gated_delta(config: "ModelConfig", length: int) -> Mixer:
    return GatedDeltaAttention(config.negative, config.decay_steps if config.decay else None)


def _momentum_delta(config: "ModelConfig", length: int) -> Mixer:
    return MomentumDeltaAttention(config.start_beta, config.negative, config.decay_steps if config.decay else None)


def _feature_map(config: "ModelConfig") -> FeatureMap:
    return length_scaled if config.scale_by_length else elu_plus_one


_MAP = ("scale_by_length",)
_MOMENTUM = ("beta", "gamma", "weighting", "denominator", *_MAP)
_GATED = ("negative", "decay", "decay_steps")
# fmt: off
NAMED = (
    NamedModel("softmax", _softmax, ("attention_dropout",), "#000000", "-", "o", origin="paper"),
    NamedModel("reformer", _reformer, ("buckets", "rounds", "chunk_size"), "#E69F00", (0, (1, 1)), "v",
               origin="paper"),
    NamedModel("performer", _performer, ("features", "redraw"), "#56B4E9", (0, (3, 1, 1, 1)), "<", origin="arena"),
    NamedModel("linformer", _linformer, ("features",), "#8C6D31", (0, (2, 2)), ">", origin="arena"),
    NamedModel("linear", _linear, ("denominator", *_MAP), "#0072B2", "--", "s", origin="paper"),
    NamedModel("momentum", _momentum, _MOMENTUM, "#009E73", "-.", "^", origin="paper"),
    NamedModel("momentum-connection", _momentum, _MOMENTUM, "#CC79A7", (0, (4, 1, 1, 1, 1, 1)), "D", "momentum",
               "momentum", "paper"),
    NamedModel("adaptive-momentum", _momentum, _MOMENTUM, "#D55E00", (0, (6, 1)), "P", "adaptive",
               "momentum", "paper"),
    NamedModel("gated-momentum", _gated_momentum, ("beta", "gamma", *_MAP), "#66A61E", (0, (5, 2, 1, 2)), "X"),
    NamedModel("retention", _retention, (), "#7F7F7F", (0, (1, 2)), "p"),
    NamedModel("delta", _delta, ("negative",), "#6A3D9A", (0, (3, 2)), "h"),
    NamedModel("gated-delta", _gated_delta, _GATED, "#B2182B", (0, (8, 2)), "*"),
    NamedModel("momentum-delta", _momentum_delta, ("start_beta", *_GATED), "#01665E", (0, (8, 1, 2, 1)), "d"),
    NamedModel("hybrid", _gated_delta, (*_GATED, "attention_dropout"), "#4D4D4D", (0, (10, 1, 1, 1)), "8"),
    *(row for row in vars(added_models).values() if isinstance(row, NamedModel)),
)
# fmt: on
BY_NAME = {model.name: model for model in NAMED}
MIXERS = {model.name: model for model in NAMED if not model.attention}  # by what a configuration calls them
ALL_MODELS = tuple(BY_NAME)
MODELS = tuple(model.name for model in NAMED if model.origin == "paper")  # of the copy task and most tables
PAPER_MODELS = tuple(model.name for model in NAMED if model.origin != "family")
FAMILY = tuple(model.name for model in NAMED if model.origin == "family")


def named(config: "ModelConfig", name: str) -> "ModelConfig":
    """The same sizes and coefficients, with the attention and connection that the name stands for."""
    if name not in BY_NAME:
        raise nearest("model", name, ALL_MODELS)
    model = BY_NAME[name]
    return replace(config, attention=model.attention or name, residual=model.residual)
