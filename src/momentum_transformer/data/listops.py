"""ListOps: nested lists of digits under MIN, MAX, MED and SM (sum modulo 10); the label is the value.

Reads Long Range Arena's `basic_{train,val,test}.tsv` (a header, then expression and value) and the original task's
files (value, then expression), gzipped or not. Every label is checked against the expression.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from ..bounded import MEGABYTE, UNREADABLE, numbered_lines
from .array_cache import Arrays, cached, identity_of
from .folder import DataError, candidates
from .listops_evaluation import CLOSE, MOST_DEPTH, OPERATORS, evaluate_all
from .listops_generator import SIZES, generate
from .sequences import Splits, flatten, unflatten

SYMBOLS = (*"0123456789", *OPERATORS, "]")  # tokens 0 … 14
MOST_BYTES = 4_096 * MEGABYTE
LONGEST_LINE = 262_144  # bytes
MOST_TOKENS = 4_096  # of an expression
OFFICIAL_LENGTHS = (500, 2000)  # both exclusive
FILES = {"train": "basic_train.tsv", "validation": "basic_val.tsv", "test": "basic_test.tsv"}
FOLDERS = ("listops", "listops-1000", "lra_release/listops-1000", "lra_release/lra_release/listops-1000")
ENCODING = 1  # to be raised when the same files should be encoded anew

_MARKS = {symbol.encode(): bytes([0x80 + i]) for i, symbol in enumerate(OPERATORS)}  # one byte an operator
_ALPHABET = b"0123456789" + b"".join(_MARKS.values()) + b"]"
_CODES = bytes.maketrans(_ALPHABET, bytes(range(len(SYMBOLS))))


def load_listops(
    root: Path,
    *,
    lengths: tuple[int, int] = OFFICIAL_LENGTHS,
    sizes: tuple[int, int, int] = SIZES,
    seed: int = 0,
    workers: int | None = None,
) -> Splits:
    """The first `sizes` of the official files, where they are and official lengths are asked for; else our own."""
    files = _official_files(root) if lengths == OFFICIAL_LENGTHS else None
    if files is not None:
        read_from = {"encoding": ENCODING, "files": identity_of(*files.values())}
        arrays = cached("listops", read_from, lambda: _read_all(files))
        parts = [unflatten(arrays, name) for name in FILES]
        for path, part, size in zip(files.values(), parts, sizes, strict=True):
            if len(part) < size:
                raise DataError(f"{path} has {len(part):,} rows where {size:,} are asked for; ask for fewer")
        parts = [part.take(np.arange(size)) for part, size in zip(parts, sizes, strict=True)]
    else:
        made_of = {"encoding": ENCODING, "lengths": lengths, "sizes": sizes, "seed": seed}
        arrays = cached("listops-generated", made_of, lambda: _generate_all(lengths, sizes, seed, workers))
        whole = unflatten(arrays, "all")
        ends = np.cumsum(sizes)
        parts = [whole.take(np.arange(end - size, end)) for size, end in zip(sizes, ends, strict=True)]
    train, validation, test = parts
    return Splits((train,), (validation,), (test,))


def _official_files(root: Path) -> dict[str, Path] | None:
    for folder in candidates(root, FOLDERS):
        found = {name: path for name, file in FILES.items() if (path := _variant(folder / file)) is not None}
        if len(found) == len(FILES):
            return found
        if found:
            missing = " and no ".join(file for name, file in FILES.items() if name not in found)
            raise DataError(f"{folder} has no {missing}; put it there, or take the other files of ListOps away")
    return None


def _variant(path: Path) -> Path | None:
    return next((file for file in (path, path.with_name(f"{path.name}.gz")) if file.is_file()), None)


def _read_all(files: dict[str, Path]) -> Arrays:
    arrays: Arrays = {}
    for name, path in files.items():
        arrays |= flatten(*read_listops(path), prefix=name)
    return arrays


def _generate_all(lengths: tuple[int, int], sizes: tuple[int, int, int], seed: int, workers: int | None) -> Arrays:
    return flatten(*generate(sum(sizes), lengths=lengths, seed=seed, workers=workers), prefix="all")


def read_listops(path: Path) -> tuple[list[bytes], list[int]]:
    """Tokens (0 … 14, as bytes) and label of every row; a row that is wrong in any way is an error that names it."""
    expressions, labels, numbers = [], [], []
    for number, line in _lines(path):
        if number == 1 and line.startswith(b"Source\t"):
            continue
        where = f"{path} line {number}"
        fields = line.split(b"\t")
        if len(fields) != 2:
            raise DataError(f"{where}: expected an expression and a label with a tab between, not {_show(line)}")
        # Long Range Arena has the label last, the original task first
        text, label = fields if b"[" in fields[0] or not fields[0].isdigit() else fields[::-1]
        if not label.isdigit() or len(label) > 1:
            raise DataError(f"{where}: the label must be a digit, not {_show(label)}")
        expressions.append(_encode(text, where))
        labels.append(int(label))
        numbers.append(number)
    if not expressions:
        raise DataError(f"{path} has no rows")
    for value, given, number in zip(evaluate_all(expressions), labels, numbers, strict=True):
        if value < 0:
            raise DataError(f"{path} line {number}: the expression is not one whole list, at most {MOST_DEPTH} deep")
        if value != given:
            raise DataError(f"{path} line {number}: the label is {given}, but the expression's value is {value}")
    return expressions, labels


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        yield from numbered_lines(path, MOST_BYTES, LONGEST_LINE)
    except UNREADABLE as error:
        raise DataError(f"{path} cannot be read: {error}; delete it and get it again") from None


def _encode(text: bytes, where: str) -> bytes:
    """The tokens of an expression; the parentheses say nothing that the brackets do not, and are dropped."""
    bare = marked = text.translate(None, delete=b"()")
    for word, mark in _MARKS.items():
        marked = marked.replace(word, mark)
    words = marked.split()
    tokens = b"".join(words)
    if len(tokens) != len(words) or tokens.translate(None, delete=_ALPHABET) or not text.isascii():
        known = {symbol.encode() for symbol in SYMBOLS}
        wrong = next(word for word in bare.split() if word not in known)
        raise DataError(f"{where}: {_show(wrong)} is no token of ListOps ({' '.join(SYMBOLS)})")
    if not tokens:
        raise DataError(f"{where}: the expression is empty")
    if len(tokens) > MOST_TOKENS:
        raise DataError(f"{where}: the expression has {len(tokens):,} tokens, more than {MOST_TOKENS:,}")
    return tokens.translate(_CODES)


def _show(text: bytes) -> str:
    shown = text[:40].decode("utf-8", "backslashreplace")
    return repr(f"{shown}…" if len(text) > 40 else shown)


def write_listops(path: Path, expressions: Iterable[bytes], labels: Iterable[int]) -> None:
    """A file in Long Range Arena's format."""
    with path.open("w", encoding="utf-8") as file:
        file.write("Source\tTarget\n")
        file.writelines(f"{to_text(e)}\t{label}\n" for e, label in zip(expressions, labels, strict=True))


def to_text(expression: bytes) -> str:
    """The expression as the official files have it: a pair of parentheses around each application to one argument."""
    words: list[str] = []
    lists: list[int] = []  # where each open list has its operator
    for token in expression:
        if 10 <= token < CLOSE:
            lists.append(len(words))
            words.append(SYMBOLS[token])
            continue
        words.append(SYMBOLS[token])
        if token == CLOSE:
            start = lists.pop()
            words[start] = f"( {words[start]}"
            words[-1] += " )"
        if lists:  # an argument of the list around it
            words[lists[-1]] = f"( {words[lists[-1]]}"
            words[-1] += " )"
    return " ".join(words)
