"""ListOps by Long Range Arena's rules, from a seed, the same for any number of workers.

A node is a digit with probability 3/4, and always at depth 10; otherwise one of four operators with 2 to 10 children.
Trees are kept if their length lies between two bounds. Tens of thousands of trees grow side by side, one token each
at a step; examples come in blocks, each from random numbers of its own, so that it does not matter who makes it.
"""

from functools import partial

import numpy as np

from .folder import DataError
from .listops_evaluation import CLOSE, evaluate_all
from .workers import made_blocks

SIZES = (96_000, 2_000, 2_000)
MAX_DEPTH = 10
MAX_ARGUMENTS = 10
BLOCK = 2000  # examples
ROOTS = 16_384  # trees that grow side by side


def generate(
    count: int, *, lengths: tuple[int, int], seed: int, workers: int | None = None
) -> tuple[list[bytes], np.ndarray]:
    """`count` different expressions with more than lengths[0] and fewer than lengths[1] tokens, and their values."""
    shortest, longest = lengths
    if count < 1 or not 0 <= shortest < longest - 1:
        raise DataError(f"ListOps needs 1 example or more and room between its lengths, not {count} and {lengths}")
    blocks = -(-count // BLOCK)
    make = partial(_block, lengths=lengths, seed=seed)
    made = made_blocks(make, blocks, workers)
    unique: dict[bytes, int] = {}
    for expressions, values in made:
        unique.update(zip(expressions, values.tolist(), strict=True))
    while len(unique) < count:  # only where bounds are so tight that trees repeat
        before = len(unique)
        expressions, values = make(blocks)
        unique.update(zip(expressions, values.tolist(), strict=True))
        blocks += 1
        if len(unique) == before:
            raise DataError(f"there are not {count} different expressions of ListOps with lengths in {lengths}")
    chosen = list(unique)[:count]
    return chosen, np.array([unique[expression] for expression in chosen])


def _block(number: int, *, lengths: tuple[int, int], seed: int) -> tuple[list[bytes], np.ndarray]:
    """Block `number` of the endless series of blocks that belongs to a seed."""
    generator = np.random.default_rng((seed, number))
    expressions: list[bytes] = []
    while len(expressions) < BLOCK:
        expressions += grow(ROOTS, lengths, generator)
    expressions = expressions[:BLOCK]
    return expressions, np.fromiter(evaluate_all(expressions), np.int64)


def grow(roots: int, lengths: tuple[int, int], generator: np.random.Generator) -> list[bytes]:
    """Trees from `roots` roots, depth first, those of the right length, in the order of their roots."""
    shortest, longest = lengths
    tokens = np.zeros((longest, roots), np.uint8)
    length = np.zeros(roots, np.int64)
    tree = np.arange(roots)  # the trees that still grow
    depth = np.zeros(roots, np.int64)  # how many lists are open
    missing = np.zeros((roots, MAX_DEPTH), np.int8)  # children still to come at each depth
    missing[:, 0] = 1
    row = np.arange(roots)
    for step in range(longest):
        left = missing[row, depth]
        closing = left == 0
        # one number decides it all: a quarter of them are operators, 4 kinds with 2 to 10 children; the rest digits
        drawn = generator.integers(1440, size=len(tree), dtype=np.int16)
        opening = (drawn < 360) & (depth < MAX_DEPTH - 1) & ~closing
        token = np.where(opening, 10 + drawn % 4, drawn % 10)
        token[closing] = CLOSE
        tokens[step, tree] = token
        missing[row, depth] = left - ~closing
        depth += opening
        depth -= closing
        opened = np.flatnonzero(opening)
        missing[opened, depth[opened]] = 2 + drawn[opened] % 36 // 4
        done = (depth == 0) & (missing[:, 0] == 0)
        if done.any():
            length[tree[done]] = step + 1
            on = ~done
            tree, depth, missing = tree[on], depth[on], missing[on]
            row = np.arange(len(tree))
            if not len(tree):
                break
    kept = np.flatnonzero((length > shortest) & (length < longest))
    columns = np.ascontiguousarray(tokens[:, kept].T)
    return [columns[i, : length[tree]].tobytes() for i, tree in enumerate(kept)]
