"""The JSON that runs leave behind, read back: every value has the type that a run wrote, or it is a ValueError."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..bounded import MEGABYTE, numbered_lines, parse_json, read_bounded

MOST_BYTES = MEGABYTE  # of a file with one object
MOST_METRICS = 1_024 * MEGABYTE
LONGEST_LINE = MEGABYTE
STEPPED = ("train", "validation", "test", "end", "concluded")  # lines of metrics that belong to a step
LARGEST = 10**15  # whole number
Suffice = Callable[[list[dict[str, Any]]], bool]
COUNTED = ("examples", "pairs")  # groups of counts in what is noted of the data


def read_object(path: Path) -> dict[str, Any]:
    """The object in a file; its format is a number, and what is noted of the data has the right types."""
    content = parse_json(read_bounded(path, MOST_BYTES))
    if not isinstance(content, dict):
        raise ValueError("it holds no object")
    if type(content.get("format", 0)) is not int:
        raise ValueError(f"its format is {content['format']!r}, not a number")
    if not _is_origin(content.get("data", {})):
        raise ValueError("its data is not what a run notes of its data")
    return content


def _is_origin(data: Any) -> bool:
    if not isinstance(data, dict) or not all(isinstance(data.get(name, {}), dict) for name in COUNTED):
        return False
    counts = [count for name in COUNTED for count in data.get(name, {}).values()]
    words = [data.get(name, "") for name in ("note", "directory", "vocabulary")]
    return (
        all(type(count) is int for count in (*counts, data.get("longest", 0)))
        and is_number(data.get("majority", 0))
        and all(isinstance(word, str) for word in words)
    )


def read_metrics(path: Path, suffice: Suffice = lambda lines: False) -> list[dict[str, Any]]:
    """All lines of metrics.jsonl; those before a damaged one, if they suffice."""
    return _read_lines(path, _damaged_metrics, suffice)


def read_samples(path: Path, suffice: Suffice = lambda lines: False) -> list[dict[str, Any]]:
    """All lines of samples.jsonl; those before a damaged one, if they suffice."""
    return _read_lines(path, _damaged_sample, suffice)


def _read_lines(path: Path, damage_of: Callable[[Any], str], suffice: Suffice) -> list[dict[str, Any]]:
    """A last line cut off by a crash is left out."""
    lines: list[dict[str, Any]] = []
    cut_off = 0  # the number of a line that is not JSON
    for number, text in numbered_lines(path, MOST_METRICS, LONGEST_LINE):
        damage = f"line {cut_off} is not JSON" if cut_off else ""
        try:
            line = parse_json(text)
        except ValueError:
            cut_off = cut_off or number
        else:
            damage = damage or (f"line {number} {found}" if (found := damage_of(line)) else "")
        if damage and suffice(lines):
            return lines
        if damage:
            raise ValueError(damage)
        if not cut_off:
            lines.append(line)
    return lines


def _damaged_sample(line: Any) -> str:
    if not isinstance(line, dict) or type(line.get("step")) is not int or not isinstance(line.get("text"), str):
        return "is no object with a step and a text"
    return ""


def _damaged_metrics(line: Any) -> str:
    """What is wrong with a line of metrics: scores are numbers, or null where there was none."""
    if not isinstance(line, dict) or not isinstance(line.get("kind"), str):
        return "is no object with a kind"
    if line["kind"] in STEPPED and not (type(step := line.get("step")) is int and 0 <= step <= LARGEST):
        return "has no step"
    if line["kind"] == "validation" and not is_number(line.get("loss")):
        return "has no loss"
    if line["kind"] in ("train", "validation", "end"):
        scores = {name: value for name, value in line.items() if name != "kind"}
        if strange := [name for name, value in scores.items() if value is not None and not is_number(value)]:
            return f"has a {strange[0]!r} that is no number"
    return ""


def read_counters(text: str) -> dict[str, Any]:
    """The counters of a checkpoint: numbers, null, and lists or objects of numbers."""
    counters = parse_json(text)
    if not isinstance(counters, dict) or type(counters.get("step", 0)) is not int:
        raise ValueError("its counters are no object with a whole step")
    for name, value in counters.items():
        parts = value if isinstance(value, list) else value.values() if isinstance(value, dict) else [value]
        if not all(part is None or is_number(part) for part in parts):
            raise ValueError(f"its {name!r} is no number")
    return counters


def is_number(value: Any) -> bool:
    """Whether it is a number that a run may have written; whole ones are bounded, since floats are."""
    return isinstance(value, float) or (type(value) is int and abs(value) <= LARGEST)
