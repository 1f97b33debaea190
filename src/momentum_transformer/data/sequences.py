"""Labelled sequences of different lengths in one flat array, which may be memory-mapped."""

from dataclasses import dataclass, replace

import numpy as np

from .array_cache import Arrays, digest_of_arrays


@dataclass(frozen=True)
class Sequences:
    tokens: np.ndarray  # uint8: every sequence behind the other
    starts: np.ndarray  # (n,)
    lengths: np.ndarray  # (n,)
    labels: np.ndarray  # (n,)
    shift: int = 1  # added to each token, so that 0 is free for padding

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, index: np.ndarray) -> "Sequences":
        """Some of the sequences, in this order; the tokens stay where they are."""
        return replace(self, starts=self.starts[index], lengths=self.lengths[index], labels=self.labels[index])

    def cut(self, length: int) -> "Sequences":
        """Each sequence up to `length` tokens."""
        return replace(self, lengths=np.minimum(self.lengths, length))

    def rows(self, index: np.ndarray, width: int | None = None) -> np.ndarray:
        """(len(index), width) int64, padded with 0; by default as wide as the longest."""
        starts, lengths = self.starts[index], self.lengths[index]
        width = int(lengths.max(initial=1)) if width is None else width
        place = np.arange(width)
        real = place < lengths[:, None]
        flat = np.where(real, starts[:, None] + place, 0)
        return np.where(real, self.tokens[flat].astype(np.int64) + self.shift, 0)


@dataclass(frozen=True)
class Splits:
    """Each part holds one `Sequences` per input of the task: one for classification, two for pairs."""

    train: tuple[Sequences, ...]
    validation: tuple[Sequences, ...]
    test: tuple[Sequences, ...]

    def digest(self) -> str:
        """What tells one set of data from another: sha256 of all of it."""
        sequences = [one for part in vars(self).values() for one in part]
        tokens = {id(one.tokens): one.tokens for one in sequences}  # parts may share theirs
        rows = [rows for one in sequences for rows in (one.starts, one.lengths, one.labels)]
        return digest_of_arrays([*tokens.values(), *rows])


def flatten(sequences: list[bytes] | list[np.ndarray], labels: list[int] | np.ndarray, prefix: str) -> Arrays:
    """Arrays for the cache, under names that start with `prefix`."""
    lengths = np.array([len(sequence) for sequence in sequences], dtype=np.int64)
    flat = [np.frombuffer(part, dtype=np.uint8) if isinstance(part, bytes) else part for part in sequences]
    return {
        f"{prefix}-tokens": np.concatenate(flat) if flat else np.zeros(0, np.uint8),
        f"{prefix}-lengths": lengths,
        f"{prefix}-labels": np.asarray(labels, dtype=np.int64),
    }


def unflatten(arrays: Arrays, prefix: str, *, shift: int = 1) -> Sequences:
    """The inverse of `flatten`."""
    lengths = arrays[f"{prefix}-lengths"]
    starts = np.cumsum(lengths) - lengths
    return Sequences(arrays[f"{prefix}-tokens"], starts, lengths, arrays[f"{prefix}-labels"], shift)
