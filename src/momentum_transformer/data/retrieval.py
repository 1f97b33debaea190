"""Do two papers cite each other? Byte-level pairs of texts in Long Range Arena's `new_aan_pairs` files.

No header; five columns: label, two identifiers, and two texts as Python bytes literals, which are decoded without
running anything. A paper occurs in many pairs, so each distinct text is stored once.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ..bounded import MEGABYTE, UNREADABLE, numbered_lines
from .array_cache import Arrays, cached, identity_of
from .folder import DataError, candidates
from .sequences import Sequences, Splits

LENGTH = 4000
MOST_BYTES = 16_384 * MEGABYTE
LONGEST_LINE = 64 * MEGABYTE
ENCODING = 1  # to be raised when the same files should be encoded anew
FILES = {"train": "train", "validation": "eval", "test": "test"}
FOLDERS = ("aan", "retrieval", "tsv_data", "lra_release/tsv_data", "lra_release/lra_release/tsv_data")
LABELS = {b"0": 0, b"0.0": 0, b"1": 1, b"1.0": 1}
# what stands for one byte in a literal, up to 4,000 times
UNITS = re.compile(rb"(?:[^\\]|\\x[0-9a-fA-F]{2}|\\[\\'\"abfnrtv]){0,%d}" % LENGTH, re.DOTALL)


def load_retrieval(root: Path) -> Splits:
    """Each part is two `Sequences` of texts up to 4,000 bytes, row by row a pair."""
    files = _find(root)
    identity = {"encoding": ENCODING, "files": identity_of(*files.values())}
    arrays = cached("retrieval", identity, lambda: _encode(files))
    lengths = arrays["text-lengths"]
    starts = np.cumsum(lengths) - lengths
    parts = []
    for name in FILES:
        pairs, labels = arrays[f"{name}-pairs"], arrays[f"{name}-labels"]
        parts.append(tuple(Sequences(arrays["text-tokens"], starts[i], lengths[i], labels) for i in pairs.T))
    return Splits(*parts)


def _find(root: Path) -> dict[str, Path]:
    for folder in candidates(root, FOLDERS):
        found = {}
        for name, part in FILES.items():
            for suffix in (".tsv", ".tsv.gz"):
                if (path := folder / f"new_aan_pairs.{part}{suffix}").is_file():
                    found[name] = path
                    break
        if len(found) == len(FILES):
            return found
        if found:
            missing = " and no ".join(f"new_aan_pairs.{FILES[name]}.tsv" for name in FILES if name not in found)
            raise DataError(f"{folder} has no {missing}; put it there")
    raise DataError(
        f"the pairs of papers are not in {root}: put new_aan_pairs.train.tsv, .eval.tsv and .test.tsv of Long Range "
        f"Arena's release into {root / 'aan'}, or name their folder by --data-dir or MOMENTUM_DATA"
    )


def _encode(files: dict[str, Path]) -> Arrays:
    texts: dict[bytes, int] = {}
    arrays: Arrays = {}
    for name, path in files.items():
        labels, pairs = [], []
        for label, first, second in read_pairs(path):
            labels.append(label)
            pairs.append([texts.setdefault(text, len(texts)) for text in (first, second)])
        arrays[f"{name}-labels"] = np.array(labels)
        arrays[f"{name}-pairs"] = np.array(pairs)
    arrays["text-tokens"] = np.frombuffer(b"".join(texts), np.uint8)
    arrays["text-lengths"] = np.array([len(text) for text in texts])
    return arrays


def read_pairs(path: Path) -> Iterator[tuple[int, bytes, bytes]]:
    """Label and both texts, cut to 4,000 bytes, of every row; a row that is wrong is an error that names it."""
    number = 0
    try:
        for number, line in numbered_lines(path, MOST_BYTES, LONGEST_LINE):
            where = f"{path} line {number}"
            if (tabs := line.count(b"\t")) != 4:
                raise DataError(f"{where}: expected 5 columns with tabs between, not {tabs + 1}")
            fields = line.split(b"\t")
            if fields[0] not in LABELS:
                raise DataError(f"{where}: the label must be 0 or 1, not {_show(fields[0])}")
            yield LABELS[fields[0]], _text(fields[3], where), _text(fields[4], where)
    except UNREADABLE as error:
        raise DataError(f"{path} cannot be read: {error}; delete it and get it again") from None
    if not number:
        raise DataError(f"{path} has no rows")


def _text(literal: bytes, where: str) -> bytes:
    """The first 4,000 bytes that a bytes literal stands for."""
    quote = literal[1:2]
    if literal[:1] != b"b" or quote not in (b"'", b'"') or len(literal) < 3 or literal[-1:] != quote:
        raise DataError(f"{where}: a text must be a bytes literal such as b'…', not {_show(literal)}")
    body = literal[2:-1]
    units = UNITS.match(body)
    assert units is not None
    if units.end() == 0:
        raise DataError(f"{where}: a text is empty" if not body else f"{where}: unknown escape {_show(body)}")
    text = units[0].decode("unicode_escape").encode("latin-1")
    if len(text) < LENGTH and units.end() < len(body):
        raise DataError(f"{where}: unknown escape {_show(body[units.end() :])}")
    return text


def _show(text: bytes) -> str:
    return repr(text[:30].decode("latin-1") + ("…" if len(text) > 30 else ""))
