"""Frozen dataclasses to and from JSON, and `--set part.field=value`, with errors that name the nearest valid key.

Where the values of a dataclass choose the kinds of its groups (`Grouped`), the file has the groups, such as `mixer`,
and a path leaves them out: `model.beta`.
"""

import dataclasses
import difflib
import json
import math
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any, Literal, Protocol, TypeVar, get_args, get_origin, get_type_hints, runtime_checkable

from ..bounded import parse_json
from ..errors import CommandError

T = TypeVar("T")
MANY = 24  # an error lists up to this many names; of more, only the nearest one
LARGEST = 10**15  # whole number


class ConfigurationError(CommandError, ValueError):
    """A name, key or value that does not exist; the message is for the user."""


@runtime_checkable
class Grouped(Protocol):
    """A dataclass with groups of settings, each of a kind that the other values choose. No name is in two groups."""

    @classmethod
    def groups(cls, values: Mapping[str, Any]) -> dict[str, type]:
        """The kind of every group."""
        ...

    @classmethod
    def of_any_kind(cls) -> Collection[str]:
        """The settings of all kinds that there are."""
        ...


def nearest(kind: str, given: str, allowed: Sequence[str]) -> ConfigurationError:
    """An error for an unknown name that suggests the closest known one."""
    close = difflib.get_close_matches(given, allowed, n=1, cutoff=0.4)
    if close and len(allowed) > MANY:
        return ConfigurationError(f"unknown {kind} {given!r}; did you mean {close[0]!r}?")
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return ConfigurationError(f"unknown {kind} {given!r}{hint} (known: {', '.join(allowed)})")


def not_among(name: str, given: object, allowed: Collection[object]) -> ConfigurationError:
    """An error for a value that is none of these, which suggests the closest word."""
    known = ", ".join(map(repr, allowed))
    close = difflib.get_close_matches(str(given), [str(one) for one in allowed], n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return ConfigurationError(f"{name} must be one of {known}, not {shown(given)}{hint}")


def to_json(config: Any) -> dict[str, Any]:
    """Nested dataclasses as nested dictionaries, exactly as a JSON file gives them back."""
    plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(config)))
    return plain


def from_json(kind: type[T], values: dict[str, Any], *, where: str = "") -> T:
    """The inverse, strict: every key known, every value of its type."""
    if not isinstance(values, dict):
        raise ConfigurationError(f"a configuration is a group of settings, not {shown(values)}")
    groups: dict[str, type] = {}
    if issubclass(kind, Grouped):
        groups = kind.groups(values)
        values = _grouped(values, groups, kind.of_any_kind())
    hints = {**_hints(kind), **groups}  # type: ignore[arg-type]
    arguments = {}
    for key, value in values.items():
        if key not in hints:
            own = [name for name in hints if name not in groups]
            own += [name for group in groups.values() for name in _hints(group)]
            raise nearest("setting", where + key, [where + name for name in own])
        hint = hints[key]
        if dataclasses.is_dataclass(hint):
            if not isinstance(value, dict):
                raise ConfigurationError(f"{where}{key} is a group of settings, not {shown(value)}")
            inside = where if key in groups else f"{where}{key}."
            arguments[key] = from_json(hint, value, where=inside)  # type: ignore[arg-type]
        else:
            arguments[key] = _convert(value, hint, where + key)
    try:
        return kind(**arguments)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None


def _grouped(values: dict[str, Any], groups: dict[str, type], of_any_kind: Collection[str]) -> dict[str, Any]:
    """The values in their groups.

    Values without groups are those of paths, and of runs of versions that had none: each goes where it belongs, and
    those of other kinds are left out.
    """
    if groups.keys() & values.keys():
        return {name: {} for name in groups} | values
    rest = {name: value for name, value in values.items() if name not in of_any_kind}
    return rest | {
        group: {name: values[name] for name in _hints(kind) if name in values} for group, kind in groups.items()
    }


def override(config: T, settings: Sequence[str], others: Mapping[str, Any] | None = None) -> T:
    """The configuration with `part.field=value` applied, each value read as JSON, else as a plain string.

    A setting that only another kind of group has changes nothing. Where a setting chooses another kind, `others` has
    the settings of it, by path; without, they have their defaults.
    """
    own = paths(config)
    values = {**(others or {}), **own}
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals:
            raise ConfigurationError(f"--set takes part.field=value, not {setting!r}")
        if path not in values and not _of_another_kind(config, path):
            raise nearest("setting", path, list(own))
        try:
            values[path] = parse_json(text)
        except ValueError:
            values[path] = text
    tree: dict[str, Any] = {}
    for path, value in values.items():
        *parts, name = path.split(".")
        place = tree
        for part in parts:
            place = place.setdefault(part, {})
        place[name] = value
    return from_json(type(config), tree)


def _of_another_kind(config: Any, path: str) -> bool:
    *parts, name = path.split(".")
    for part in parts:
        config = getattr(config, part, None)
    return isinstance(config, Grouped) and name in config.of_any_kind()


def as_word(text: str) -> str:
    """A value that `override` reads as this text, also where it looks like a number."""
    try:
        json.loads(text)
    except ValueError:
        return text
    return json.dumps(text)


def paths(config: Any, prefix: str = "") -> dict[str, Any]:
    """Every setting as `part.field`, and its value as JSON has it."""
    found: dict[str, Any] = {}
    for name in _hints(type(config)):  # type: ignore[arg-type]
        value = getattr(config, name)
        if dataclasses.is_dataclass(value):
            found |= paths(value, prefix if isinstance(config, Grouped) else f"{prefix}{name}.")
        else:
            found[prefix + name] = list(value) if isinstance(value, tuple) else value
    return found


@cache
def _hints(kind: Any) -> Mapping[str, Any]:
    """The fields of a dataclass, and the type of each."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _convert(value: Any, hint: Any, name: str) -> Any:
    if get_origin(hint) is Literal:
        if not isinstance(value, str | int | None) or value not in get_args(hint):
            raise not_among(name, value, get_args(hint))
        return value
    if get_origin(hint) is tuple:
        kinds = get_args(hint)
        if not isinstance(value, list | tuple) or len(value) != len(kinds):
            raise ConfigurationError(f"{name} must be a list of {len(kinds)} values, not {shown(value)}")
        return tuple(_convert(item, kind, name) for item, kind in zip(value, kinds, strict=True))
    if isinstance(value, int) and abs(value) > LARGEST:
        raise ConfigurationError(f"{name} must be at most {LARGEST:,}, not {shown(value)}")
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise ConfigurationError(f"{name} must be {_article(hint.__name__)}, not {shown(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigurationError(f"{name} must be a finite number, not {value}")
    return value


def shown(value: Any) -> str:
    """A value as a message shows it: cut where it is long."""
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}…"


def _article(name: str) -> str:
    return {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a word"}.get(name, name)
