"""Frozen dataclasses to and from JSON, and `--set part.field=value`, with errors that name the nearest valid key."""

import dataclasses
import difflib
import json
import math
from collections.abc import Sequence
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from ..bounded import parse_json
from ..errors import UserError

T = TypeVar("T")
MANY = 24  # names, which are not all shown where one of them is near
LARGEST = 10**15  # whole number


class ConfigurationError(UserError, ValueError):
    """A name, key or value that does not exist; the message is for the user."""


def nearest(kind: str, given: str, allowed: Sequence[str]) -> ConfigurationError:
    """An error for an unknown name that suggests the closest known one."""
    close = difflib.get_close_matches(given, allowed, n=1, cutoff=0.4)
    if close and len(allowed) > MANY:
        return ConfigurationError(f"unknown {kind} {given!r}; did you mean {close[0]!r}?")
    hint = f"did you mean {close[0]!r}? " if close else ""
    return ConfigurationError(f"unknown {kind} {given!r}; {hint}(known: {', '.join(allowed)})")


def to_json(config: Any) -> dict[str, Any]:
    """Nested dataclasses as nested dictionaries, exactly as a JSON file gives them back."""
    plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(config)))
    return plain


def from_json(kind: type[T], values: dict[str, Any], *, where: str = "") -> T:
    """The inverse, strict: every key known, every value of its type."""
    if not isinstance(values, dict):
        raise ConfigurationError(f"a configuration is a group of settings, not {_shown(values)}")
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
            value = parse_json(text)
        except ValueError:
            value = text
        *groups, last = path.split(".")
        place = values
        for i, group in enumerate(groups):
            if not isinstance(place.get(group), dict):
                raise nearest("setting", path, list(paths(to_json(config))))
            place = place[group]
            if i == len(groups) - 1 and last not in place:
                raise nearest("setting", path, list(paths(to_json(config))))
        if not groups and (last not in place or isinstance(place[last], dict)):
            raise nearest("setting", path, list(paths(to_json(config))))
        place[last] = value
    return from_json(type(config), values)


def as_word(text: str) -> str:
    """A value that `override` reads as this text, also where it looks like a number."""
    try:
        json.loads(text)
    except ValueError:
        return text
    return json.dumps(text)


def paths(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Every setting as `part.field`, and its value."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= paths(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return found


def _convert(value: Any, hint: Any, name: str) -> Any:
    if get_origin(hint) is Literal:
        if not isinstance(value, str | int | None) or value not in get_args(hint):
            known = ", ".join(map(repr, get_args(hint)))
            raise ConfigurationError(f"{name} must be one of {known}, not {_shown(value)}")
        return value
    if get_origin(hint) is tuple:
        kinds = get_args(hint)
        if not isinstance(value, list | tuple) or len(value) != len(kinds):
            raise ConfigurationError(f"{name} must be a list of {len(kinds)} values, not {_shown(value)}")
        return tuple(_convert(item, kind, name) for item, kind in zip(value, kinds, strict=True))
    if isinstance(value, int) and abs(value) > LARGEST:
        raise ConfigurationError(f"{name} must be at most {LARGEST:,}, not {_shown(value)}")
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise ConfigurationError(f"{name} must be {_article(hint.__name__)}, not {_shown(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigurationError(f"{name} must be a finite number, not {value}")
    return value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}…"


def _article(name: str) -> str:
    return {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a word"}.get(name, name)
