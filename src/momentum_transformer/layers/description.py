"""Frozen objects in a few words, for print(model)."""

import dataclasses
from typing import Any

ALWAYS = ("beta", "gamma")  # shown also where they have their default


def described(thing: Any) -> str:
    """A frozen object as its name, its β and γ, and every option that is not the default."""
    if not dataclasses.is_dataclass(thing):
        return getattr(thing, "__name__", repr(thing))
    options = []
    for field in dataclasses.fields(thing):
        value = getattr(thing, field.name)
        made = field.default_factory
        default = field.default if made is dataclasses.MISSING else made()
        if field.name in ALWAYS or value != default:
            options.append(f"{field.name}={described(value)}")
    return f"{type(thing).__name__}({', '.join(options)})"
