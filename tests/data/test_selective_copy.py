"""Selective copying by its definition."""

import pytest
import torch

from momentum_transformer.data.selective_copy import selective_copy_batch


def test_what_is_scored_is_the_symbols_in_their_order() -> None:
    batch = selective_copy_batch(60, symbols=16, blanks=64, alphabet=16, seed=0)
    assert batch.inputs.shape == (60, 64 + 2 * 16)
    places = set()
    for tokens, targets, scored in zip(*batch[:3], strict=True):
        assert tokens.tolist().count(1) == 1
        separator = tokens.tolist().index(1)
        assert separator == 80
        before = tokens[:separator]
        word = before[before != 0]
        assert len(word) == 16
        assert ((word >= 2) & (word < 18)).all()
        assert scored.nonzero().flatten().tolist() == list(range(80, 96))
        assert torch.equal(targets[scored], word)
        assert torch.equal(tokens[separator + 1 :], word[:-1])
        places |= set(before.nonzero().flatten().tolist())
    assert len(places) == 80


def test_the_seed_decides_everything() -> None:
    first, again, other = (selective_copy_batch(4, symbols=3, blanks=9, alphabet=4, seed=s).inputs for s in (5, 5, 6))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="not 0, 9 and 4"):
        selective_copy_batch(4, symbols=0, blanks=9, alphabet=4, seed=0)
