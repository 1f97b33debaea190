"""The files in a tar archive, one after the other: nothing is unpacked to disk, and no header is believed."""

import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from ..bounded import MEGABYTE, UNREADABLE, open_bounded
from .folder import DataError

MOST_BYTES = 65_536 * MEGABYTE  # of all files in an archive
LONGEST_NAME = 1_000


class _Header(tarfile.TarInfo):
    """A damaged header is an error everywhere, not the end of the archive."""

    @classmethod
    def frombuf(cls, *arguments: Any) -> "_Header":
        try:
            return super().frombuf(*arguments)
        except tarfile.InvalidHeaderError as error:  # type: ignore[attr-defined]
            raise tarfile.ReadError(str(error)) from None


class _NoFurther:
    """A second read at the end of the file raises, else tarfile skips terabytes that a forged header claims."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._ended = file, False

    def read(self, size: int) -> bytes:
        if self._ended:
            raise EOFError("it ends in the middle of a file")
        content = self._file.read(size)
        self._ended = not content
        return content


def read_archive(path: Path, wanted: Callable[[str], bool], most: int) -> Iterator[tuple[str, bytes]]:
    """Name and content of every wanted file of a .tar or .tar.gz; a file of more than `most` bytes is an error."""
    try:
        with (
            open_bounded(path, MOST_BYTES) as file,
            tarfile.open(fileobj=cast(BinaryIO, _NoFurther(file)), mode="r|", tarinfo=_Header) as archive,
        ):
            while (member := archive.next()) is not None:
                archive.members.clear()  # type: ignore[attr-defined] # else it keeps the headers of all of them
                if len(member.name) > LONGEST_NAME or not wanted(member.name):
                    continue
                if not member.isreg() or member.issparse():
                    raise DataError(f"{path}: {member.name} is a link or sparse; pack plain files")
                if member.size > most:
                    raise DataError(f"{path}: {member.name} has {member.size:,} bytes, more than {most:,}")
                content = archive.extractfile(member)
                assert content is not None
                yield member.name, content.read()
    except (tarfile.TarError, *UNREADABLE, ValueError, RecursionError) as error:
        raise DataError(
            f"{path} is no tar archive, or cut off or damaged ({error}); get it again, as .tar.gz, or name another"
        ) from None
