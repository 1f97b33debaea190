"""The copy task: w 0 w 0 … 0, predict the second w. Made as it is needed, without a loop over samples."""

from typing import NamedTuple

import torch
from torch import Tensor

SEPARATOR = 0  # also the padding


class CopyBatch(NamedTuple):
    tokens: Tensor  # (b, n)
    targets: Tensor  # (b, n)  the token that comes next
    scored: Tensor  # (b, n)  the separator and the copy


def copy_batch(rows: int, *, length: int, symbols: int, seed: int) -> CopyBatch:
    """`rows` sequences of `length` tokens; words of length/4 up to (length - 1)/2 - 1 symbols from 1 … `symbols`."""
    if length < 8 or symbols < 1:
        raise ValueError(f"the copy task needs length >= 8 and symbols >= 1, not {length} and {symbols}")
    generator = torch.Generator().manual_seed(seed)
    size = torch.randint(length // 4, (length - 1) // 2, (rows, 1), generator=generator)
    word = torch.randint(1, symbols + 1, (rows, length), generator=generator)
    place = torch.arange(length)
    source = torch.where(place < size, place, (place - size - 1).clamp(min=0))
    tokens = word.gather(1, source).masked_fill((place == size) | (place > 2 * size), SEPARATOR)
    targets = torch.cat([tokens[:, 1:], torch.full((rows, 1), SEPARATOR)], 1)
    return CopyBatch(tokens, targets, (place >= size - 1) & (place < 2 * size))
