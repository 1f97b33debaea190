"""The copy task by its protocol."""

import pytest
import torch

from momentum_transformer.data.copy_sequences import copy_batch


def test_each_sequence_is_a_word_a_separator_and_the_word_again() -> None:
    batch = copy_batch(300, length=128, symbols=10, seed=0)
    sizes = set()
    for tokens, targets, scored in zip(*batch, strict=True):
        size = int((tokens == 0).nonzero()[0])
        sizes.add(size)
        word = tokens[:size]
        assert ((word >= 1) & (word <= 10)).all()
        assert torch.equal(tokens[size + 1 : 2 * size + 1], word)
        assert not tokens[2 * size + 1 :].any()
        assert torch.equal(targets[:-1], tokens[1:])
        assert targets[-1] == 0
        assert scored.nonzero().flatten().tolist() == list(range(size - 1, 2 * size))
    assert min(sizes) == 32
    assert max(sizes) == 62


def test_the_seed_decides_everything() -> None:
    assert all(
        torch.equal(a, b)
        for a, b in zip(
            copy_batch(4, length=16, symbols=3, seed=5), copy_batch(4, length=16, symbols=3, seed=5), strict=True
        )
    )
    first, second = (copy_batch(4, length=16, symbols=3, seed=seed).tokens for seed in (5, 6))
    assert not torch.equal(first, second)


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="needs length >= 8"):
        copy_batch(4, length=4, symbols=3, seed=0)
