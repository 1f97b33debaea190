"""State tracking: the product of all elements of a group so far, at every token.

`parity` is the group of two elements, `s3` all permutations of three letters; element 0 changes nothing.
"""

from itertools import permutations
from typing import Literal

import torch
from torch import Tensor

from .scored_sequences import ScoredSequences

Group = Literal["parity", "s3"]
PERMUTATIONS = tuple(permutations(range(3)))


def product_table(group: Group) -> Tensor:
    """[second, first] → the element that does what `first` does, and then what `second` does."""
    if group == "parity":
        return torch.tensor([[0, 1], [1, 0]])
    table = [
        [PERMUTATIONS.index(tuple(second[i] for i in first)) for first in PERMUTATIONS] for second in PERMUTATIONS
    ]
    return torch.tensor(table)


def word_batch(
    rows: int, *, group: Group, length: int, shortest: int | None = None, part: str | None = None, seed: int
) -> ScoredSequences:
    """Elements at random. With `shortest`, each row has a length from there to `length`, and no score behind it.

    With `part`, the scored positions are also reported apart under that name.
    """
    if length < 1 or (shortest is not None and not 1 <= shortest <= length):
        raise ValueError(f"words need a length of 1 or more and a shortest one up to it, not {length} and {shortest}")
    generator = torch.Generator().manual_seed(seed)
    table = product_table(group)
    tokens = torch.randint(len(table), (rows, length), generator=generator)
    state = torch.zeros(rows, dtype=torch.long)
    states = []
    for token in tokens.unbind(1):
        state = table[token, state]
        states.append(state)
    sizes = torch.randint(shortest or length, length + 1, (rows, 1), generator=generator)
    scored = torch.arange(length) < sizes
    return ScoredSequences(tokens, torch.stack(states, 1), scored, {part: scored} if part else {}, {})
