"""What is saved beside weights and moments, and whether a file's counters can be those of a run."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from .checkpoint import CheckpointError
from .records import is_number

SCALER = {"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"}


@dataclass
class Counters:
    """What is saved beside weights and moments."""

    step: int = 0
    seconds: float = 0.0  # spent in training steps, evaluation and saving left out
    # CPU time of the training steps, summed over threads; None where a part of the run did not count it
    cpu_seconds: float | None = 0.0
    best_score: float = math.inf  # of the validation data; lower is better
    best_step: int = 0
    unevaluated: int = 0  # 1 where an interruption ended the evaluation of this step
    losses: list[float] = field(default_factory=list)  # of the steps since the last line of the log
    logged_step: int = 0
    logged_seconds: float = 0.0
    scaler: dict[str, Any] = field(default_factory=dict)  # of gradients in float16


def counters_of(stored: dict[str, Any], path: Path, *, steps: int) -> Counters:
    """The counters of a checkpoint of a run of so many steps; those that an older version did not save begin here."""
    if unknown := stored.keys() - {counter.name for counter in fields(Counters)}:
        raise CheckpointError(f"{path} has counters of another version: {', '.join(sorted(unknown))}")
    before = {"cpu_seconds": None, "logged_step": stored.get("step"), "logged_seconds": stored.get("seconds")}
    found = {**vars(Counters()), "step": None, "seconds": None, **before, **stored}
    for name, fits in _FITS.items():
        if not fits(found[name]):
            raise _damaged(path, name, found[name])
    for name, most in (("step", steps), ("best_step", found["step"]), ("logged_step", found["step"])):
        if found[name] > most:
            raise _damaged(path, name, found[name])
    return Counters(**found)


def _damaged(path: Path, name: str, value: Any) -> CheckpointError:
    given = "missing" if value is None else repr(value)[:50]
    return CheckpointError(f"{path} is damaged: its {name!r} is {given}; delete it and use another, or train again")


def _is_count(value: Any) -> bool:
    return type(value) is int and is_number(value) and value >= 0


def _is_time(value: Any) -> bool:
    return is_number(value) and math.isfinite(value) and value >= 0


def _is_scaler(value: Any) -> bool:
    if not isinstance(value, dict) or not value:
        return value == {}
    positive = value.keys() == SCALER and all(is_number(value[name]) and value[name] >= 0 for name in SCALER)
    return positive and _is_count(value["growth_interval"]) and _is_count(value["_growth_tracker"])


_FITS: dict[str, Callable[[Any], bool]] = {
    "step": _is_count,
    "seconds": _is_time,
    "cpu_seconds": lambda value: value is None or _is_time(value),
    "best_score": lambda value: is_number(value) and not math.isnan(value),
    "best_step": _is_count,
    "unevaluated": lambda value: type(value) is int and value in (0, 1),
    "losses": lambda value: isinstance(value, list) and all(is_number(x) and math.isfinite(x) for x in value),
    "logged_step": _is_count,
    "logged_seconds": _is_time,
    "scaler": _is_scaler,
}
