"""Files read within limits: no claim that a file makes decides how much time or memory reading it takes.

What goes beyond a limit is an OSError, and what is not JSON a ValueError; who reads a file says which one it was.
"""

import gzip
import io
import json
import re
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

MEGABYTE = 2**20
RATIO = 200  # how many times its own size a compressed file may unpack to
ALWAYS = 64 * MEGABYTE  # what any compressed file may unpack to
DEPTH = 64  # of JSON: lists and objects in each other
UNREADABLE = (OSError, EOFError, zlib.error)  # what reading a damaged file can raise
MAGIC = b"\x1f\x8b"  # of gzip


class _Limited(io.RawIOBase):
    """A file that raises an OSError where it goes beyond `most` bytes."""

    def __init__(self, file: Any, most: int) -> None:
        self._file, self._most, self._read = file, most, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count: int = self._file.readinto(buffer)
        self._read += count
        if self._read > self._most:
            raise _too_large(self._most)
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def _too_large(most: int) -> OSError:
    return OSError(f"it holds more than {most / MEGABYTE:,.0f} MB")


def _size(path: Path) -> int:
    """The bytes of a file, which is neither a folder nor something that may never end."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError("it is not a file")
    return found.st_size


def open_bounded(path: Path, most: int) -> BinaryIO:
    """A file, unpacked where it is compressed by gzip, of `most` bytes and RATIO times its own size at most."""
    size = _size(path)
    with path.open("rb") as file:
        packed = file.read(len(MAGIC)) == MAGIC
    if path.suffix == ".gz" and not packed:
        raise OSError("its name ends with .gz, but it is not compressed by gzip")
    if size > most and not packed:
        raise _too_large(most)
    opened = gzip.open(path) if packed else path.open("rb")  # noqa: SIM115 (closed by what is returned)
    most = min(most, max(ALWAYS, RATIO * size)) if packed else most
    return cast(BinaryIO, io.BufferedReader(_Limited(opened, most), MEGABYTE // 4))


def read_bounded(path: Path, most: int) -> bytes:
    """All of a file, unpacked where it is compressed by gzip; one of more than `most` bytes is not read to its end."""
    with open_bounded(path, most) as file:
        return file.read()


def read_tail(path: Path, most: int) -> bytes:
    """The last bytes of a file, however long it is."""
    start = max(0, _size(path) - most)
    with path.open("rb") as file:
        file.seek(start)
        return file.read(most)


def numbered_lines(path: Path, most: int, longest: int) -> Iterator[tuple[int, bytes]]:
    """The lines of a file with their numbers, of `longest` bytes at most, without what ends them."""
    with open_bounded(path, most) as file:
        number = 0
        while line := file.readline(longest + 2):
            number += 1
            line = line.rstrip(b"\r\n")
            if len(line) > longest:
                raise OSError(f"line {number} has more than {longest:,} bytes")
            yield number, line


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text in UTF-8; anything else, however deep or odd, is a ValueError."""
    text = text.decode() if isinstance(text, bytes) else text
    if text.count("[") + text.count("{") > DEPTH and _depth(text) > DEPTH:
        raise ValueError(f"more than {DEPTH} lists and objects are in each other")
    value = json.loads(text)
    if "\\ud" in text or "\\uD" in text:
        json.dumps(value, ensure_ascii=False).encode()  # half of a character cannot be written anywhere
    return value


def _depth(text: str) -> int:
    """How deep brackets outside of strings are in each other."""
    outside = "".join(text.replace("\\\\", "").replace('\\"', "").split('"')[::2])
    depth = deepest = 0
    for bracket in re.findall(r"[\[\]{}]", outside):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return deepest
