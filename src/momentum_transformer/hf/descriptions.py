"""Mixers and residual rules as plain values, for config.json: a name, and every option that is not the default."""

import dataclasses
from typing import Any

from ..experiments.named_models import ADDED
from ..layers.family_mixers import (
    DeltaAttention,
    GatedDeltaAttention,
    GatedMomentumAttention,
    MomentumDeltaAttention,
    RetentionAttention,
)
from ..layers.paper_mixers import (
    LearnedMomentumAttention,
    LinearAttention,
    MomentumAttention,
    SoftmaxAttention,
    WindowAttention,
)
from ..layers.parts import Tail
from ..layers.residual import AdaptiveMomentumResidual, DifferenceResidual, MomentumResidual, PlainResidual
from ..layers.short_convolution import ShortConvolution
from ..ops.feature_maps import elu_plus_one, l2_normalized, length_scaled

MIXERS: dict[str, type[Any]] = {
    "softmax": SoftmaxAttention,
    "window": WindowAttention,
    "linear": LinearAttention,
    "momentum": MomentumAttention,
    "learned-momentum": LearnedMomentumAttention,
    "retention": RetentionAttention,
    "delta": DeltaAttention,
    "gated-delta": GatedDeltaAttention,
    "momentum-delta": MomentumDeltaAttention,
    "gated-momentum": GatedMomentumAttention,
    **{row.name: type(row.settings().make(1)) for row in ADDED},
}
RESIDUALS: dict[str, type[Any]] = {
    "plain": PlainResidual,
    "momentum": MomentumResidual,
    "difference": DifferenceResidual,
    "adaptive": AdaptiveMomentumResidual,
}
PARTS: dict[str, type[Any]] = {"convolution": ShortConvolution, "tail": Tail, "start": MomentumAttention}
FEATURE_MAPS = {function.__name__: function for function in (elu_plus_one, length_scaled, l2_normalized)}


def described(thing: Any, kinds: dict[str, type[Any]]) -> dict[str, Any]:
    """A mixer or rule as plain values, `{"name": "momentum", "beta": 0.6}`; it is given as object, by name, or so."""
    if isinstance(thing, str | dict):
        thing = made(thing, kinds)
    for name, kind in kinds.items():
        if type(thing) is kind:
            return {"name": name, **_options(thing)}
    raise ValueError(f"{type(thing).__name__} has no description; those that have one: {', '.join(kinds)}")


def made(description: str | dict[str, Any], kinds: dict[str, type[Any]]) -> Any:
    """The inverse: the mixer or rule that a description stands for."""
    options = {"name": description} if isinstance(description, str) else dict(description)
    name = options.pop("name", None)
    if name not in kinds:
        raise ValueError(f"name must be one of {', '.join(kinds)}, not {name!r}")
    return _build(kinds[name], options, name)


def _build(kind: type[Any], options: dict[str, Any], name: str) -> Any:
    known = {field.name: field for field in dataclasses.fields(kind)}
    if unknown := sorted(options.keys() - known):
        raise ValueError(f"{name} has no option {unknown[0]!r}; it has {', '.join(known) or 'none'}")
    missing = [key for key, field in known.items() if _default(field) is dataclasses.MISSING and key not in options]
    if missing:
        raise ValueError(f"{name} needs the option {missing[0]!r}: give {{'name': {name!r}, {missing[0]!r}: ...}}")
    return kind(**{key: _value(key, value) for key, value in options.items()})


def _value(key: str, plain: Any) -> Any:
    if key == "feature_map" and plain is not None:
        if plain not in FEATURE_MAPS:
            raise ValueError(f"feature_map must be one of {', '.join(FEATURE_MAPS)}, not {plain!r}")
        return FEATURE_MAPS[plain]
    if isinstance(plain, dict) and key in PARTS:
        return _build(PARTS[key], plain, key)
    return tuple(plain) if isinstance(plain, list) else plain


def _options(thing: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for field in dataclasses.fields(thing):
        value = getattr(thing, field.name)
        if value == _default(field):
            continue
        if dataclasses.is_dataclass(value):
            value = _options(value)
        elif callable(value):
            if value not in FEATURE_MAPS.values():
                raise ValueError(f"{field.name} must be one of {', '.join(FEATURE_MAPS)}, or it has no description")
            value = value.__name__
        plain[field.name] = list(value) if isinstance(value, tuple) else value
    return plain


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
