"""Lines of a file or of standard input, as they come, and where the answers go."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ..bounded import MEGABYTE
from ..data.folder import DataError
from ..data.parallel_text import read_lines
from ..durable import replacing
from ..errors import UserError
from ..experiments.configuration import ConfigurationError

STANDARD = Path("-")  # standard input by name
LONGEST = MEGABYTE  # bytes of a line


def is_standard(text: Path | None) -> bool:
    return text is None or text == STANDARD


def name_of(text: Path | None) -> str:
    return "standard input" if is_standard(text) else str(text)


def line_batches(text: Path | None, size: int) -> Iterator[list[str]]:
    """Lines of a file; or of standard input, as many as have come, `size` at most."""
    if text is not None and not is_standard(text):
        lines = read_lines(text)
        yield from (lines[i : i + size] for i in range(0, len(lines), size))
        return
    if sys.stdin.isatty():  # a terminal would otherwise not show that it waits for input
        sys.stderr.write("type lines; Ctrl-D ends\n")
    number, rest = 1, b""
    while chunk := sys.stdin.buffer.read1(2**16):  # type: ignore[union-attr]  # what there is, without waiting for more
        *whole, rest = (rest + chunk).split(b"\n")
        if len(rest) > LONGEST:
            raise DataError(f"standard input, line {number + len(whole)}: more than {LONGEST:,} bytes without an end")
        for i in range(0, len(whole), size):
            yield [_decode(line, number + i + j) for j, line in enumerate(whole[i : i + size])]
        number += len(whole)
    if rest:
        yield [_decode(rest, number)]


def _decode(line: bytes, number: int) -> str:
    try:
        return line.decode().rstrip("\r")
    except UnicodeDecodeError as error:
        raise DataError(f"standard input, line {number}: not UTF-8 ({error.reason})") from None


@contextmanager
def open_output(out: Path) -> Iterator[IO[str]]:
    """A file that is whole when it takes its place: with all answers, or those before a line that has none."""
    said: UserError | None = None
    try:
        if out.exists() and not out.is_file():  # a device or a pipe
            with out.open("w", encoding="utf-8") as place:
                yield place
            return
        with replacing(out.resolve()) as temporary, temporary.open("w", encoding="utf-8") as place:
            try:
                yield place
            except UserError as error:
                said = error
    except BrokenPipeError:
        raise
    except OSError as error:
        raise ConfigurationError(f"--out {out} cannot be written: {error.strerror}") from None
    if said is not None:
        raise said
