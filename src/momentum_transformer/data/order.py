"""Which rows of a data set make the batch of a step: a shuffled pass after another, from (seed, step) alone."""

from functools import lru_cache

import torch
from torch import Tensor


def batch_rows(step: int, *, batch_size: int, count: int, seed: int) -> Tensor:
    """Rows of the batch; each pass over the data has an order of its own, and a batch may span two passes."""
    if count < 1 or batch_size < 1:
        raise ValueError(f"a batch needs rows: count {count}, batch_size {batch_size}")
    first = step * batch_size
    rows: list[int] = []
    while len(rows) < batch_size:
        epoch, place = divmod(first + len(rows), count)
        rows += _order(seed, epoch, count)[place : place + batch_size - len(rows)].tolist()
    return torch.tensor(rows)


@lru_cache(maxsize=4)
def _order(seed: int, epoch: int, count: int) -> Tensor:
    generator = torch.Generator().manual_seed((seed * 1_000_003 + epoch) % 2**63)
    return torch.randperm(count, generator=generator)
