"""Frozen dataclasses to and from JSON, and `--set part.field=value`, with errors that name the nearest valid key."""

import dataclasses
import difflib
import json
from collections.abc import Sequence
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")


class ConfigurationError(ValueError):
    """A name, key or value that does not exist; the message is for the user."""


def nearest(kind: str, given: str, allowed: Sequence[str]) -> ConfigurationError:
    """An error for an unknown name that suggests the closest known one."""
    close = difflib.get_close_matches(given, allowed, n=1, cutoff=0.4)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return ConfigurationError(f"unknown {kind} {given!r}; {hint}(known: {', '.join(allowed)})")


def to_json(config: Any) -> dict[str, Any]:
    """Nested dataclasses as nested dictionaries, exactly as a JSON file gives them back."""
    plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(config)))
    return plain


def from_json(kind: type[T], values: dict[str, Any], *, where: str = "") -> T:
    """The inverse, strict: every key known, every value of its type."""
    hints = get_type_hints(kind)
    arguments = {}
    for key, value in values.items():
        if key not in hints:
            raise nearest("setting", where + key, [where + name for name in hints])
        hint = hints[key]
        if dataclasses.is_dataclass(hint):
            if not isinstance(value, dict):
                raise ConfigurationError(f"{where}{key} is a group of settings, not a value; set {where}{key}.<name>")
            arguments[key] = from_json(hint, value, where=f"{where}{key}.")  # type: ignore[arg-type]
        else:
            arguments[key] = _convert(value, hint, where + key)
    try:
        return kind(**arguments)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None


def override(config: T, settings: Sequence[str]) -> T:
    """The configuration with `part.field=value` applied, each value read as JSON, else as a plain string."""
    values = to_json(config)
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals:
            raise ConfigurationError(f"--set takes part.field=value, not {setting!r}")
        try:
            value = json.loads(text)
        except json.JSONDecodeError:
            value = text
        *groups, last = path.split(".")
        place = values
        for i, group in enumerate(groups):
            if not isinstance(place.get(group), dict):
                raise nearest("setting", path, _paths(to_json(config)))
            place = place[group]
            if i == len(groups) - 1 and last not in place:
                raise nearest("setting", path, _paths(to_json(config)))
        if not groups and (last not in place or isinstance(place[last], dict)):
            raise nearest("setting", path, _paths(to_json(config)))
        place[last] = value
    return from_json(type(config), values)


def as_word(text: str) -> str:
    """A value that `override` reads as this text, also where it looks like a number."""
    try:
        json.loads(text)
    except ValueError:
        return text
    return json.dumps(text)


def _paths(values: dict[str, Any], prefix: str = "") -> list[str]:
    paths = []
    for key, value in values.items():
        paths += _paths(value, f"{prefix}{key}.") if isinstance(value, dict) else [prefix + key]
    return paths


def _convert(value: Any, hint: Any, name: str) -> Any:
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise ConfigurationError(f"{name} must be one of {', '.join(map(repr, get_args(hint)))}, not {value!r}")
        return value
    if get_origin(hint) is tuple:
        kinds = get_args(hint)
        if not isinstance(value, list | tuple) or len(value) != len(kinds):
            raise ConfigurationError(f"{name} must be a list of {len(kinds)} values, not {value!r}")
        return tuple(_convert(item, kind, name) for item, kind in zip(value, kinds, strict=True))
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise ConfigurationError(f"{name} must be {_article(hint.__name__)}, not {value!r}")
    return value


def _article(name: str) -> str:
    return {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a word"}.get(name, name)
