"""Recall: every answer is what a plain loop over the tokens remembers."""

import pytest
import torch

from momentum_transformer.data.key_values import recall_batch
from momentum_transformer.data.scored_sequences import ScoredSequences


def remembered(tokens: list[int], writes: int) -> tuple[dict[int, int], dict[int, int]]:
    """What a dictionary holds after the pairs, and how often each key was written."""
    memory: dict[int, int] = {}
    times: dict[int, int] = {}
    for i in range(writes):
        key, value = tokens[2 * i : 2 * i + 2]
        memory[key] = value
        times[key] = times.get(key, 0) + 1
    return memory, times


@pytest.mark.parametrize(
    ("pairs", "rewritten", "length", "vocabulary"), [(8, 0, 64, 512), (6, 3, 41, 21), (1, 1, 6, 4)]
)
def test_answers_are_what_a_loop_remembers(pairs: int, rewritten: int, length: int, vocabulary: int) -> None:
    batch = recall_batch(50, pairs=pairs, rewritten=rewritten, length=length, vocabulary=vocabulary, seed=1)
    assert batch.inputs.shape == batch.targets.shape == batch.scored.shape == (50, length)
    writes = pairs + rewritten
    for row in range(50):
        tokens = batch.inputs[row].tolist()
        memory, times = remembered(tokens, writes)
        assert len(memory) == pairs
        assert all(1 <= key <= vocabulary // 2 < value <= vocabulary for key, value in memory.items())
        assert len({*tokens[1 : 2 * writes : 2]}) == writes, "values must differ"
        assert sorted(times.values()) == [1] * (pairs - rewritten) + [2] * rewritten
        asked = batch.scored[row].nonzero().flatten().tolist()
        assert sorted(tokens[i] for i in asked) == sorted(memory), "every key once"
        assert all(i >= 2 * writes and i % 2 == 0 for i in asked)
        assert [int(batch.targets[row, i]) for i in asked] == [memory[tokens[i]] for i in asked]
        assert all(tokens[i] == 0 for i in range(2 * writes, length) if i not in asked), "the rest is blank"
        for i in asked if rewritten else ():
            assert bool(batch.parts["revised"][row, i]) == (times[tokens[i]] == 2)
            assert bool(batch.parts["untouched"][row, i]) == (times[tokens[i]] == 1)


def test_parts_are_scored_positions_only() -> None:
    batch = recall_batch(20, pairs=4, rewritten=2, length=30, vocabulary=40, seed=0)
    assert torch.equal(batch.parts["revised"] | batch.parts["untouched"], batch.scored)
    assert not (batch.parts["revised"] & batch.parts["untouched"]).any()
    assert (batch.parts["revised"].sum(1) == 2).all()
    assert not recall_batch(2, pairs=4, length=30, vocabulary=40, seed=0).parts


def test_slots_follow_the_power_law() -> None:
    """One question: its slot has the chance of the law itself; with power 1 all slots are alike."""
    for power in (0.01, 1.0):
        batch = recall_batch(20_000, pairs=1, length=12, vocabulary=4, power=power, seed=3)
        slots = (batch.scored.int().argmax(1) - 2) // 2
        found = torch.bincount(slots, minlength=5) / 20_000
        law = torch.arange(1.0, 6) ** (power - 1)
        torch.testing.assert_close(found, law / law.sum(), atol=0.015, rtol=0)


def test_the_seed_decides_everything() -> None:
    def make(seed: int) -> ScoredSequences:
        return recall_batch(4, pairs=3, rewritten=1, length=20, vocabulary=30, seed=seed)

    first, again, other = make(5), make(5), make(6)
    assert torch.equal(first.inputs, again.inputs)
    assert torch.equal(first.targets, again.targets)
    assert not torch.equal(first.inputs, other.inputs)


def test_rows_are_a_share_of_every_tensor() -> None:
    whole = recall_batch(7, pairs=3, rewritten=1, length=20, vocabulary=30, seed=0)
    shares = [whole.rows(i, 3) for i in range(3)]
    assert [len(share.inputs) for share in shares] == [3, 2, 2]
    assert torch.equal(shares[1].parts["revised"], whole.parts["revised"][1::3])


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"pairs": 8, "length": 31, "vocabulary": 64}, "8 pairs and their questions take 32 tokens, not 31"),
        ({"pairs": 8, "length": 64, "vocabulary": 15}, "take 16 symbols or more, not 15"),
        ({"pairs": 2, "rewritten": 3, "length": 64, "vocabulary": 64}, "of which 0 to all are rewritten, not 2 and 3"),
        ({"pairs": 2, "length": 64, "vocabulary": 64, "power": 0.0}, "power of the gaps must be positive"),
    ],
)
def test_impossible_sizes_are_refused(sizes: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        recall_batch(2, seed=0, **sizes)
