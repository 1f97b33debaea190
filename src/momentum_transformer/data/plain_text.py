"""Text files of any kind of prose: one or many, packed by gzip or not, read as documents of UTF-8."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from ..bounded import UNREADABLE, read_bounded
from .folder import DataError, candidates

MOST = 2**30  # bytes of text, unpacked
SHAKESPEARE = ("input.txt", "input.txt.gz")


def shakespeare_file(root: Path) -> Path:
    """Tiny Shakespeare, which is one file, packed or not."""
    for folder in candidates(root, ("tinyshakespeare",)):
        for name in SHAKESPEARE:
            if (folder / name).is_file():
                return folder / name
    raise DataError(
        f"tiny Shakespeare is not in {root}: put input.txt "
        "(https://github.com/karpathy/char-rnn/tree/master/data/tinyshakespeare) into "
        f"{root / 'tinyshakespeare'}, or name its folder by --data-dir or MOMENTUM_DATA; --source learns from your own"
    )


def text_files(sources: Sequence[Path]) -> list[Path]:
    """The files themselves, and those in folders that end in .txt or .txt.gz, by name."""
    files: list[Path] = []
    for source in sources:
        if source.is_dir():
            found = sorted(path for end in ("*.txt", "*.txt.gz") for path in source.rglob(end) if path.is_file())
            if not found:
                raise DataError(f"{source} has no .txt or .txt.gz file in it; name the files themselves")
            files += found
        elif source.exists():
            files.append(source)
        else:
            raise DataError(f"there is no file {source}; check the path")
    return files


def read_documents(files: Sequence[Path], *, separator: str = "") -> Iterator[str]:
    """Each file is a document, or as many as `separator` divides it into; empty ones are left out."""
    left = MOST
    for path in files:
        content = _read(path, left)
        left -= len(content)
        text = _decode(path, content)
        if not text.strip():
            raise DataError(f"{path} is empty: a text needs something to learn from")
        yield from filter(None, text.split(separator) if separator else [text])


def _read(path: Path, most: int) -> bytes:
    """The bytes of a file, unpacked, within the limit."""
    try:
        return read_bounded(path, most)
    except EOFError:
        raise DataError(f"{path} is cut off in the middle of its gzip data; get it again") from None
    except UNREADABLE as error:
        raise DataError(f"{path} cannot be read: {error}; a text has {MOST / 2**30:g} GiB at most") from None


def _decode(path: Path, content: bytes) -> str:
    if (zero := content.find(0)) >= 0:
        wide = content.startswith((b"\xff\xfe", b"\xfe\xff"))
        hint = "it looks like UTF-16: iconv -f utf-16 -t utf-8" if wide else "it looks binary; --source takes text"
        raise DataError(f"{path}: byte {zero:,} is zero, which no UTF-8 text has; {hint}")
    try:
        return content.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}, line {line:,}: not UTF-8 (byte 0x{content[error.start]:02x}); convert it, for example by "
            "iconv -f latin1 -t utf-8, or remove the line if encodings are mixed"
        ) from None
