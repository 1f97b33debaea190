"""Batches of sentences of like length, bounded by padded tokens: count × the longest source or target in the batch."""

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise

import numpy as np


class TokenBatches:
    """Shuffled batches: the batch of a step is a pure function of (seed, step).

    Sentences are packed in the order of their lengths, so each pass has the same number of batches; which sentences of
    a length come together, and in which order the batches come, is drawn anew for each pass.
    """

    def __init__(self, source_lengths: np.ndarray, target_lengths: np.ndarray, *, tokens: int, seed: int) -> None:
        if seed < 0:
            raise ValueError(f"seed must be 0 or more, not {seed}")
        self.lengths = _longest(source_lengths, target_lengths)
        self.seed = seed
        self.bounds = _pack(np.sort(self.lengths), tokens)
        self._pass = lru_cache(maxsize=2)(self._draw_pass)

    @property
    def steps_per_pass(self) -> int:
        return len(self.bounds) - 1

    @property
    def smallest(self) -> int:
        """How many sentences the smallest batch has."""
        return int(np.diff(self.bounds).min())

    def rows(self, step: int) -> np.ndarray:
        """Rows of the batch of this step, counted from 0 and going on from pass to pass."""
        if step < 0:
            raise ValueError(f"step must be 0 or more, not {step}")
        number, place = divmod(step, self.steps_per_pass)
        sentences, batches = self._pass(number)
        batch = batches[place]
        return sentences[self.bounds[batch] : self.bounds[batch + 1]]

    def _draw_pass(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Sentences by length, those of equal length shuffled; and the order of the batches."""
        generator = np.random.default_rng([self.seed, number])
        sentences = generator.permutation(len(self.lengths))
        sentences = sentences[np.argsort(self.lengths[sentences], kind="stable")]
        return sentences, generator.permutation(self.steps_per_pass)


def in_order(*lengths: np.ndarray, tokens: int, by_length: bool = False) -> Iterator[np.ndarray]:
    """Batches for evaluation, each sentence once: in the order of the data or, with less padding, of the lengths.

    `lengths` are those of the sources or, where they are known, of sources and targets.
    """
    longest = _longest(*lengths)
    rows = np.argsort(longest, kind="stable") if by_length else np.arange(len(longest))
    bounds = _pack(longest[rows], tokens)
    for start, end in pairwise(bounds.tolist()):
        yield rows[start:end]


def _longest(*lengths: np.ndarray) -> np.ndarray:
    shapes = {np.shape(side) for side in lengths}
    if len(shapes) != 1 or len(next(iter(shapes))) != 1:
        raise ValueError(f"lengths must be one number a sentence on each side, not of shapes {sorted(shapes)}")
    longest = np.maximum.reduce([np.asarray(side) for side in lengths])
    if not len(longest):
        raise ValueError("batches need at least one sentence")
    return longest


def _pack(lengths: np.ndarray, tokens: int) -> np.ndarray:
    """Where batches begin, and the end: each as many sentences in this order as fit, but at least one."""
    if tokens < 1:
        raise ValueError(f"tokens must be 1 or more, not {tokens}")
    bounds, longest = [0], 0
    for place, length in enumerate(lengths.tolist()):
        longest = max(longest, length)
        if place > bounds[-1] and (place + 1 - bounds[-1]) * longest > tokens:
            bounds.append(place)
            longest = length
    return np.array([*bounds, len(lengths)])
