"""Associative recall of many keys, after Zoology: pairs of a key and a value, then keys whose values are asked for.

Symbol 0 is a blank, 1 … vocabulary / 2 are keys, those up to `vocabulary` are values. Where keys are written again,
the last value counts.
"""

import torch
from torch import Tensor

from .scored_sequences import ScoredSequences

BLANK = 0


def check_recall(*, pairs: int, length: int, vocabulary: int, rewritten: int = 0, power: float = 0.01) -> None:
    """Refuse sizes that do not fit together."""
    if pairs < 1 or not 0 <= rewritten <= pairs:
        raise ValueError(f"recall needs 1 pair or more, of which 0 to all are rewritten, not {pairs} and {rewritten}")
    needed = 2 * (pairs + rewritten) + 2 * pairs
    if length < needed:
        again = f", {rewritten} of them written twice," if rewritten else ""
        raise ValueError(f"{pairs} pairs{again} and their questions take {needed} tokens, not {length}")
    if vocabulary < 2 * (pairs + rewritten):
        least = 2 * (pairs + rewritten)
        raise ValueError(f"keys and values must differ: they take {least} symbols or more, not {vocabulary}")
    if power <= 0:
        raise ValueError(f"the power of the gaps must be positive, not {power}")


def recall_batch(
    rows: int, *, pairs: int, length: int, vocabulary: int, rewritten: int = 0, power: float = 0.01, seed: int
) -> ScoredSequences:
    """Pairs first, in any order, `rewritten` of their keys a second time; then every key once, each in a slot of two.

    Slot i of those that are left is taken with a chance that goes with (i + 1)^(power - 1): most gaps are short. All
    other tokens are blank. The values of a row are all different, so that an old one is never right.
    """
    check_recall(pairs=pairs, length=length, vocabulary=vocabulary, rewritten=rewritten, power=power)
    generator = torch.Generator().manual_seed(seed)
    key_symbols, writes = vocabulary // 2, pairs + rewritten
    keys = 1 + _distinct(rows, key_symbols, pairs, generator)
    values = 1 + key_symbols + _distinct(rows, vocabulary - key_symbols, writes, generator)
    which = torch.cat([torch.arange(pairs), torch.arange(rewritten)])  # the key of each write
    order = _distinct(rows, writes, writes, generator)
    written = which[order]

    tokens = torch.full((rows, length), BLANK)
    tokens[:, 0 : 2 * writes : 2] = keys.gather(1, written)
    tokens[:, 1 : 2 * writes : 2] = values
    answers = torch.empty_like(keys)
    for i in range(writes):  # in the order of time: the last write of a key stays
        answers.scatter_(1, written[:, i : i + 1], values[:, i : i + 1])

    places = 2 * writes + 2 * _slots(rows, (length - 2 * writes) // 2, pairs, power, generator)
    tokens.scatter_(1, places, keys)
    targets = torch.zeros_like(tokens).scatter_(1, places, answers)
    scored = torch.zeros_like(tokens, dtype=torch.bool).scatter_(1, places, True)
    parts = {}
    if rewritten:
        revised = torch.zeros_like(scored).scatter_(1, places[:, :rewritten], True)
        parts = {"revised": revised, "untouched": scored & ~revised}
    return ScoredSequences(tokens, targets, scored, parts, {})


def _distinct(rows: int, count: int, taken: int, generator: torch.Generator) -> Tensor:
    """(rows, taken): in each row that many different numbers below `count`, in any order."""
    return torch.rand(rows, count, generator=generator).argsort(1)[:, :taken]


def _slots(rows: int, count: int, taken: int, power: float, generator: torch.Generator) -> Tensor:
    """(rows, taken): slots drawn one after the other by a power law, none of them twice.

    The smallest of exponential variables with these rates is each slot with its chance, and so is the next one of
    those that are left.
    """
    rates = torch.arange(1, count + 1, dtype=torch.float64) ** (power - 1)
    waits = torch.empty(rows, count, dtype=torch.float64).exponential_(generator=generator) / rates
    return waits.argsort(1)[:, :taken]
