"""One text as bytes: the last tenth is for the test, a part of what comes before it for validation."""

import gzip
import hashlib
import zlib
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from .folder import DataError, candidates

BYTES = 256
FILES = ("input.txt", "input.txt.gz")
TEST = 0.1  # the share of the text, at its end


class ByteText(NamedTuple):
    train: Tensor  # (n,) bytes
    validation: Tensor
    test: Tensor
    digest: str  # sha256 of the whole text


def load_shakespeare(root: Path, *, validation: float) -> ByteText:
    """Tiny Shakespeare, which is one file, packed or not."""
    for folder in candidates(root, ("tinyshakespeare",)):
        for name in FILES:
            if (folder / name).is_file():
                return load_bytes(folder / name, validation=validation)
    raise DataError(
        f"tiny Shakespeare is not in {root}: put input.txt "
        "(https://github.com/karpathy/char-rnn/tree/master/data/tinyshakespeare) into "
        f"{root / 'tinyshakespeare'}, or name its folder by --data-dir or MOMENTUM_DATA"
    )


def load_bytes(path: Path, *, validation: float) -> ByteText:
    """Any file, packed by gzip or not. `validation` is the share of the text that stands before its last tenth."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}") from None
    end = len(content) - round(TEST * len(content))
    start = end - round(validation * len(content))
    if not 0 < start < end < len(content):
        raise DataError(f"{path} has {len(content):,} bytes, which are too few for training, validation and test")
    text = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    return ByteText(text[:start], text[start:end], text[end:], hashlib.sha256(content).hexdigest())


def windows(text: Tensor, length: int) -> Tensor:
    """(m, length + 1): the whole text in windows side by side, each with the first byte of the next one.

    Every byte but the first is the target of exactly one window; bytes that do not fill a last window are left out.
    """
    count = (len(text) - 1) // length
    return text[: count * length + 1].unfold(0, length + 1, length)


def random_windows(text: Tensor, rows: int, length: int, *, seed: int) -> Tensor:
    """(rows, length + 1), each from a place of its own."""
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randint(len(text) - length, (rows, 1), generator=generator)
    return text[starts + torch.arange(length + 1)]
