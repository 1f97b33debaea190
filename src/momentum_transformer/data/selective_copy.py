"""Selective copying: symbols among blanks at random places, a separator, then the symbols again, in order."""

import torch

from .scored_sequences import ScoredSequences

BLANK, SEPARATOR, FIRST = 0, 1, 2  # symbols are FIRST …


def check_selective_copy(*, symbols: int, blanks: int, alphabet: int) -> None:
    if symbols < 1 or blanks < 0 or alphabet < 2:
        raise ValueError(
            "selective copying needs 1 symbol or more, 0 blanks or more and an alphabet of 2 or more, "
            f"not {symbols}, {blanks} and {alphabet}"
        )


def selective_copy_batch(rows: int, *, symbols: int, blanks: int, alphabet: int, seed: int) -> ScoredSequences:
    """Sequences of blanks + 2 · symbols tokens; scored is every symbol after the separator."""
    check_selective_copy(symbols=symbols, blanks=blanks, alphabet=alphabet)
    generator = torch.Generator().manual_seed(seed)
    start = symbols + blanks  # the separator's place
    word = torch.randint(FIRST, FIRST + alphabet, (rows, symbols), generator=generator)
    places = torch.rand(rows, start, generator=generator).argsort(1)[:, :symbols].sort(1).values
    tokens = torch.full((rows, start + symbols), BLANK)
    tokens.scatter_(1, places, word)
    tokens[:, start] = SEPARATOR
    tokens[:, start + 1 :] = word[:, :-1]
    targets = torch.full_like(tokens, BLANK)
    targets[:, start:] = word
    scored = (torch.arange(start + symbols) >= start).expand(rows, -1)
    return ScoredSequences(tokens, targets, scored, {}, {})
