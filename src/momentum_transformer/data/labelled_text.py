"""Texts and their labels from a table: bytes in one flat array, and a split that keeps every label's share."""

import json
import unicodedata
from array import array
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .array_cache import Arrays, cached, identity_of
from .folder import DataError
from .sequences import Sequences, Splits, unflatten
from .table_file import read_table

ENCODING = 1  # to be raised when the same files should be encoded anew
HELD_OUT = 0.1  # the share of each label's rows to validate on, and to test on
MOST_VALIDATION, MOST_TEST = 2_000, 10_000  # rows
FEWEST = 3  # rows of a label: one for each split
MOST_LABELS = 1_000
MOST_ROWS = 10_000_000
MOST_BYTES = 2**31  # of all texts together, as far as they are read
LONGEST_LABEL = 100  # characters


@dataclass(frozen=True)
class LabelledText:
    labels: tuple[str, ...]  # by number
    splits: Splits


def load_labelled_text(source: Path, *, text: str, label: str, length: int) -> LabelledText:
    """The first `length` bytes of every text, and its label; split the same way in every run."""
    if not source.is_file():
        raise DataError(
            f"{source} is a folder, not a table" if source.is_dir() else f"there is no file {source}; check the path"
        )
    identity = {"encoding": ENCODING, "source": identity_of(source), "columns": [text, label], "length": length}
    arrays = cached("table", identity, lambda: _encode(source, text, label, length))
    whole = unflatten(arrays, "text")
    labels = tuple(json.loads(arrays["names"].tobytes()))
    return LabelledText(labels, _split(whole))


def _encode(source: Path, text: str, label: str, length: int) -> Arrays:
    tokens, lengths, numbers = bytearray(), array("q"), array("q")
    lines: dict[str, int] = {}  # label → the line where it comes first, in this order
    places: dict[str, int] = {}
    for row in read_table(source, (text, label)):
        words, name = row.cells[0].encode(), row.cells[1].strip()
        if name not in lines:
            _check_label(name, f"{source}, line {row.line}")
            if len(lines) == MOST_LABELS:
                raise DataError(
                    f"{source}, line {row.line}: {label} has more than {MOST_LABELS:,} different labels; is it the "
                    "right column?"
                )
            places[name], lines[name] = len(lines), row.line
        if len(numbers) == MOST_ROWS or len(tokens) > MOST_BYTES:
            raise DataError(
                f"{source}, line {row.line}: more than {MOST_ROWS:,} rows or {MOST_BYTES:,} bytes, which are the "
                "most; give fewer, or set data.length lower"
            )
        tokens += words[:length]
        lengths.append(min(len(words), length))
        numbers.append(places[name])
    _check_counts(source, Counter(numbers), lines)
    names = _sorted(list(lines))
    renumbered = np.array([names.index(name) for name in lines])[np.array(numbers)]
    return {
        "text-tokens": np.frombuffer(bytes(tokens), np.uint8),
        "text-lengths": np.array(lengths),
        "text-labels": renumbered,
        "names": np.frombuffer(json.dumps(names).encode(), np.uint8),
    }


def _check_label(name: str, where: str) -> None:
    if len(name) > LONGEST_LABEL:
        raise DataError(
            f"{where}: a label of {len(name):,} characters; {LONGEST_LABEL} are the most. Is it the right column?"
        )
    if any(unicodedata.category(character) == "Cc" for character in name):
        raise DataError(f"{where}: the label {name!r} has a tab or another control character in it")


def _check_counts(source: Path, counts: Counter[int], lines: dict[str, int]) -> None:
    if len(lines) == 1:
        raise DataError(f"{source} has one label only, {next(iter(lines))!r}: there is nothing to tell apart")
    for number, (name, line) in enumerate(lines.items()):
        if counts[number] < FEWEST:
            times = "once" if counts[number] == 1 else "twice"
            raise DataError(
                f"{source}, line {line}: the label {name!r} occurs {times}; it needs {FEWEST} rows, to train, "
                "validate and test on. Add some, or delete it"
            )


def _sorted(names: list[str]) -> list[str]:
    """The labels in order: of their values, if all of them are numbers."""
    try:
        return sorted(names, key=lambda name: (float(name), name))
    except ValueError:
        return sorted(names)


def _split(whole: Sequences) -> Splits:
    """A shuffle that never changes, then a tenth of each label's rows, at least one, for validation and for test."""
    order = np.random.default_rng(0).permutation(len(whole))
    parts: dict[str, list[np.ndarray]] = {"train": [], "validation": [], "test": []}
    shares = [min(HELD_OUT, most / len(whole)) for most in (MOST_VALIDATION, MOST_TEST)]
    for label in range(int(whole.labels.max()) + 1):
        rows = order[whole.labels[order] == label]
        first, second = (max(1, round(share * len(rows))) for share in shares)
        held = np.split(rows, [first, first + second])
        for part, found in zip(("validation", "test", "train"), held, strict=True):
            parts[part].append(found)
    return Splits(*((whole.take(np.sort(np.concatenate(rows))),) for rows in parts.values()))
