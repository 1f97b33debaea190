"""Documents end to end as one row of tokens, memory-mapped; windows of it, and where documents begin in them.

The last tenth is for the test, a part of what comes before it for validation.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .array_cache import Arrays, cached, identity_of
from .folder import DataError
from .plain_text import read_documents
from .units import Bytes, Characters, Pieces, Units, digest_of

TEST = 0.1  # the share of the text, at its end
ENCODING = 1  # to be raised when the same text should be encoded anew


class Windows(NamedTuple):
    """Rows of neighbouring tokens, each one longer than the context: what goes in, and what comes out."""

    tokens: Tensor  # (b, n + 1)
    begins: Tensor | None  # (b, n + 1) True where a document begins; None where there is only one

    def rows(self, which: slice) -> "Windows":
        return Windows(self.tokens[which], None if self.begins is None else self.begins[which])

    def columns(self, which: slice) -> "Windows":
        return Windows(self.tokens[:, which], None if self.begins is None else self.begins[:, which])


class PackedText(NamedTuple):
    tokens: np.ndarray  # (n,) memory-mapped
    starts: np.ndarray  # where documents begin
    digest: str  # sha256 of the text

    def split(self, validation: float) -> dict[str, range]:
        """Places of the tokens for training, validation and test: validation comes first, and the test last.

        So the training text ends where the test begins, as it does where nothing is held out: what comes just before
        the test is most like it.
        """
        n = len(self.tokens)
        end = n - round(TEST * n)
        start = min(round(validation * n), end)
        return {"training": range(start, end), "validation": range(start), "test": range(end, n)}

    def windows(self, part: range, length: int) -> Windows:
        """A part as windows end to end: each token but the first is a target once. Tokens that do not fill a last
        window are left out."""
        count = (len(part) - 1) // length
        return self._at(part.start + length * np.arange(count), length)

    def random_windows(self, part: range, rows: int, length: int, *, seed: int) -> Windows:
        """Windows that begin at independent random places."""
        generator = torch.Generator().manual_seed(seed)
        return self._at(part.start + torch.randint(len(part) - length, (rows,), generator=generator).numpy(), length)

    def _at(self, places: np.ndarray, length: int) -> Windows:
        wanted = places[:, None] + np.arange(length + 1)
        begins = None
        if len(self.starts) > 1:
            following = np.searchsorted(self.starts, wanted).clip(max=len(self.starts) - 1)
            begins = torch.from_numpy(self.starts[following] == wanted)
        return Windows(torch.from_numpy(self.tokens[wanted].astype(np.int32)), begins)


def learn_units(files: Sequence[Path], *, separator: str, pieces: int, characters: bool, validation: float) -> Units:
    """The units of a text: bytes, unless characters or so many pieces are asked for. Pieces are learned from the
    part of it that is for training."""
    if pieces:

        def learn() -> Arrays:
            documents = list(read_documents(files, separator=separator))
            size = sum(map(len, documents))
            first, end = round(validation * size), size - round(TEST * size)
            seen = []
            for document in documents:
                seen.append(document[max(first, 0) : max(end, 0)])
                first, end = first - len(document), end - len(document)
            return {"merges": np.array(Pieces.learn(seen, pieces).merges)}

        identity = {"files": identity_of(*files), "separator": separator, "pieces": pieces, "validation": validation}
        return Pieces(cached("pieces", identity | {"encoding": ENCODING}, learn)["merges"].tolist())
    return Characters.of(read_documents(files, separator=separator)) if characters else Bytes()


def load_packed(files: Sequence[Path], units: Units, *, separator: str) -> PackedText:
    """The text in these units, from the cache where it is there."""

    def build() -> Arrays:
        digest, parts, starts, n = hashlib.sha256(), [], [], 0
        for document in read_documents(files, separator=separator):
            digest.update(document.encode())
            parts.append(units.encode(document))
            starts.append(n)
            n += len(parts[-1])
        if not parts:
            raise DataError(f"{files[0]} has nothing but separators; a text needs something to learn from")
        return {
            "tokens": np.concatenate(parts),
            "starts": np.array(starts),
            "digest": np.frombuffer(digest.digest(), np.uint8),
        }

    identity = {"files": identity_of(*files), "separator": separator, "units": digest_of(units), "encoding": ENCODING}
    found = cached("text", identity, build)
    return PackedText(found["tokens"], found["starts"], bytes(found["digest"]).hex())
