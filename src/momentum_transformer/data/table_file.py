"""Columns of a table in a text file: CSV (quoted as RFC 4180 says), TSV (nothing is quoted), JSON lines; plain or gz.

Columns go by the names in the first line. Where all are asked for by number, 1 for the first, and the first line has
no such names, it is a row like the others. Whatever is wrong is an error that names file and line.
"""

import codecs
import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from ..bounded import MEGABYTE, UNREADABLE, open_bounded, parse_json
from .folder import DataError

T = TypeVar("T")

KINDS = (".csv", ".tsv", ".jsonl")
MOST_BYTES = MEGABYTE  # of a line
MOST_FILE = 65_536 * MEGABYTE
MOST_CHARACTERS = csv.field_size_limit()  # of a field
SHOWN = 8  # columns that an error lists


class Row(NamedTuple):
    line: int
    cells: tuple[str, ...]  # one for each column that was asked for


def kind_of(path: Path) -> str | None:
    """.csv, .tsv or .jsonl, whether packed or not; None for other files."""
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    return suffix if suffix in KINDS else None


def read_table(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    """Every row, as the cells of these columns; an empty cell is an error."""
    kind = kind_of(path)
    if kind is None:
        raise DataError(f"{path}: which kind of table? its name must end in {', '.join(KINDS)}, or these with .gz")
    found = _objects(path, columns) if kind == ".jsonl" else _cells(path, columns, quoted=kind == ".csv")
    rows = 0
    for row in found:
        for column, cell in zip(columns, row.cells, strict=True):
            if not cell.strip():
                raise DataError(f"{path}, line {row.line}: {column} is empty; fill it in, or delete the row")
        rows += 1
        yield row
    if not rows:
        raise DataError(f"{path} has no rows")


def _cells(path: Path, columns: Sequence[str], *, quoted: bool) -> Iterator[Row]:
    unquoted = ((number, line.split("\t") if line else []) for number, line in _lines(path))
    rows = _without_gaps(path, _quoted(path) if quoted else unquoted)
    first = next(rows, None)
    if first is None:
        raise DataError(f"{path} is empty")
    number, header = first
    places, named = _places(path, header, columns)
    if not named:
        yield Row(number, tuple(header[place] for place in places))
    for number, cells in rows:
        if len(cells) != len(header):
            count = "1 column" if len(cells) == 1 else f"{len(cells)} columns"
            raise DataError(f"{path}, line {number}: {count} where the first line has {len(header)}")
        yield Row(number, tuple(cells[place] for place in places))


def _places(path: Path, header: list[str], columns: Sequence[str]) -> tuple[list[int], bool]:
    """The positions of the columns, and whether a header names them."""
    names = [name.strip() for name in header]
    numbers = [int(column) if column.isdecimal() else 0 for column in columns]
    if all(1 <= number <= len(names) for number in numbers) and not set(columns) <= set(names):
        return [number - 1 for number in numbers], False
    for column in columns:
        if column not in names:
            if len(names) == 1 and ";" in names[0]:
                raise DataError(
                    f"{path}, line 1: {names[0][:60]!r} has semicolons between columns; save it with commas"
                )
            shown = ", ".join(repr(name[:30]) for name in names[:SHOWN])
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            raise DataError(
                f"{path} has no column {column!r}; it has {shown}{more}. Without names in the first line, say the "
                "numbers of the columns: 1 is the first"
            )
        if names.count(column) > 1:
            raise DataError(f"{path}, line 1: {names.count(column)} columns are named {column!r}; rename all but one")
    return [names.index(column) for column in columns], True


def _quoted(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Rows of CSV by the line they begin in; a quoted field may have several lines."""
    reader = csv.reader((f"{line}\n" for _, line in _lines(path)), strict=True)
    while True:
        number = reader.line_num + 1
        try:
            yield number, next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            reason = str(error)
            if "field limit" in reason or "end of data" in reason:
                reason = (
                    f"a field without an end, or of more than {MOST_CHARACTERS:,} characters; is a quote not closed?"
                )
            raise DataError(f"{path}, line {number}: {reason}") from None


def _objects(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    for number, line in _without_gaps(path, _lines(path)):
        where = f"{path}, line {number}"
        try:
            values = parse_json(line)
        except ValueError as error:
            if isinstance(error, UnicodeEncodeError):
                raise DataError(f"{where}: half a character, such as \\ud800") from None
            reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
            raise DataError(f"{where}: not JSON ({reason}); each line is one object") from None
        if not isinstance(values, dict):
            raise DataError(f"{where}: not an object such as {{{json.dumps(columns[0])}: …}} but {line[:30]!r}")
        for column in columns:
            if column not in values:
                raise DataError(
                    f"{where}: no {column!r}; it has {', '.join(map(repr, list(values)[:SHOWN])) or 'nothing'}"
                )
        yield Row(number, tuple(_word(values[column], column, where) for column in columns))


def _word(value: object, column: str, where: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    raise DataError(f"{where}: {column} must be a text or a number, not {json.dumps(value)[:30]}")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines without their ends."""
    try:
        with open_bounded(path, MOST_FILE) as file:
            number = 0
            while line := file.readline(MOST_BYTES + 1):
                number += 1
                yield number, _decoded(line, f"{path}, line {number}", first=number == 1)
    except FileNotFoundError:
        raise DataError(f"there is no file {path}; check the path") from None
    except UNREADABLE as error:
        raise DataError(f"{path} cannot be read: {error}") from None


def _decoded(line: bytes, where: str, *, first: bool) -> str:
    if first and line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DataError(f"{where}: this is UTF-16; convert the file: iconv -f utf-16 -t utf-8")
    if b"\0" in line:
        raise DataError(f"{where}: a NUL byte, which no text has; is this a table?")
    if len(line) > MOST_BYTES:
        raise DataError(f"{where}: more than {MOST_BYTES:,} bytes, which are the most of a line")
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        byte = line[error.start]
        raise DataError(
            f"{where}: not UTF-8 (byte 0x{byte:02x}); convert the file, for example by iconv -f latin1 -t utf-8"
        ) from None
    return (text.removeprefix("\ufeff") if first else text).removesuffix("\n").removesuffix("\r")


def _without_gaps(path: Path, rows: Iterator[tuple[int, T]]) -> Iterator[tuple[int, T]]:
    """Empty lines are passed over at the end of a file, and are an error elsewhere."""
    empty = None
    for number, row in rows:
        if not row:
            empty = empty or number
        elif empty:
            raise DataError(f"{path}, line {empty}: the line is empty; delete it")
        else:
            yield number, row
