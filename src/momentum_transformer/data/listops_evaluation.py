"""The values of ListOps expressions, many at a time."""

from collections.abc import Iterator

import numpy as np

from .sequences import flatten, unflatten

OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")  # tokens 10 … 13, behind the digits
CLOSE = 14
MOST_DEPTH = 256  # of lists in each other


def evaluate_all(expressions: list[bytes], area: int = 2**22) -> Iterator[int]:
    """The value of each expression; -1 where it is not one whole list or digit. Batches have `area` tokens at most."""
    lengths = np.array([len(expression) for expression in expressions])
    order = np.argsort(-lengths, kind="stable")  # so that batches are dense
    values = np.empty(len(expressions), np.int64)
    end = 0
    while end < len(order):
        start, end = end, end + max(1, area // max(1, lengths[order[end]]))
        chosen = order[start:end]
        parts = flatten([expressions[i] for i in chosen], np.zeros(len(chosen)), prefix="")
        rows = unflatten(parts, "").rows(np.arange(len(chosen))) - 1
        values[chosen] = evaluate(rows)
    yield from values.tolist()


def evaluate(rows: np.ndarray) -> np.ndarray:
    """The values of a batch of expressions (b, n), padded with -1, one token of all of them at a time.

    A list in progress is its operator and how often each digit occurred in it, which decides all four operators.
    """
    b = len(rows)
    opens, closes = (rows >= 10) & (rows < CLOSE), rows == CLOSE
    depth_after = np.cumsum(opens.astype(np.int32) - closes, axis=1)
    valid = (depth_after >= 0).all(1) & (depth_after[:, -1] == 0) & (depth_after.max(1) <= MOST_DEPTH)
    deepest = int(depth_after[valid].max(initial=0)) + 1
    operator = np.zeros((b, deepest + 1), np.int64)
    counts = np.zeros((b, deepest + 1, 10), np.int32)
    depth = np.zeros(b, np.int64)
    digits = np.arange(10)
    for column in rows.T:
        digit = np.flatnonzero((column >= 0) & (column < 10) & valid)
        counts[digit, depth[digit], column[digit]] += 1
        opening = np.flatnonzero((column >= 10) & (column < CLOSE) & valid)
        depth[opening] += 1
        operator[opening, depth[opening]] = column[opening] - 10
        counts[opening, depth[opening]] = 0
        closing = np.flatnonzero((column == CLOSE) & valid)
        if not len(closing):
            continue
        seen = counts[closing, depth[closing]]
        total = seen.sum(1)
        so_far = seen.cumsum(1)
        lower = (so_far < ((total + 1) // 2)[:, None]).sum(1)
        upper = (so_far < (total // 2 + 1)[:, None]).sum(1)
        results = ((seen > 0).argmax(1), 9 - (seen[:, ::-1] > 0).argmax(1), (lower + upper) // 2, seen @ digits % 10)
        value = np.choose(operator[closing, depth[closing]], results)
        valid[closing[total == 0]] = False
        depth[closing] -= 1
        counts[closing, depth[closing], value] += 1
    outermost = counts[:, 0]
    return np.where(valid & (outermost.sum(1) == 1), outermost.argmax(1), -1)
