"""State tracking: labels against plain Python."""

import pytest
import torch

from momentum_transformer.data.group_words import PERMUTATIONS, product_table, word_batch


def test_parity_is_whether_the_ones_so_far_are_odd() -> None:
    batch = word_batch(30, group="parity", length=25, seed=0)
    for tokens, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        assert targets == [sum(tokens[: i + 1]) % 2 for i in range(25)]
    assert batch.scored.all()


def test_permutations_are_applied_one_after_the_other() -> None:
    batch = word_batch(30, group="s3", length=25, seed=0)
    for tokens, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        for i in range(25):
            letters = [0, 1, 2]
            for token in tokens[: i + 1]:
                letters = [PERMUTATIONS[token][letter] for letter in letters]
            assert PERMUTATIONS[targets[i]] == tuple(letters)


@pytest.mark.parametrize("group", ["parity", "s3"])
def test_the_table_is_that_of_a_group(group: str) -> None:
    table = product_table(group)
    elements = range(len(table))
    assert table[0].tolist() == table[:, 0].tolist() == list(elements)
    assert all(sorted(row) == list(elements) for row in [*table.tolist(), *table.T.tolist()])
    for a in elements:
        for b in elements:
            assert torch.equal(table[table[a, b]], table[a][table[b]])
    assert torch.equal(table, table.T) == (group == "parity")


def test_lengths_are_drawn_and_nothing_behind_them_is_scored() -> None:
    batch = word_batch(500, group="s3", length=10, shortest=3, seed=0)
    sizes = batch.scored.sum(1)
    assert set(sizes.tolist()) == set(range(3, 11))
    assert torch.equal(batch.scored, torch.arange(10) < sizes[:, None])


def test_the_seed_decides_everything_and_a_part_is_what_is_scored() -> None:
    first, again, other = (word_batch(4, group="s3", length=9, part="9", seed=seed) for seed in (5, 5, 6))
    assert torch.equal(first.inputs, again.inputs)
    assert not torch.equal(first.inputs, other.inputs)
    assert torch.equal(first.parts["9"], first.scored)
    with pytest.raises(ValueError, match="not 4 and 5"):
        word_batch(2, group="s3", length=4, shortest=5, seed=0)
