"""Token batches: from (seed, step) alone, each sentence once a pass, never more padded tokens than allowed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from momentum_transformer.data.token_batches import TokenBatches, in_order


def lengths(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return generator.integers(0, 40, count), generator.integers(1, 50, count)


def padded(rows: np.ndarray, source: np.ndarray, target: np.ndarray) -> int:
    return len(rows) * max(source[rows].max(), target[rows].max())


@settings(deadline=None)
@given(st.integers(1, 80), st.integers(1, 300), st.integers(0, 5))
def test_every_sentence_once_a_pass_within_the_tokens(count: int, tokens: int, seed: int) -> None:
    source, target = lengths(count, seed)
    batches = TokenBatches(source, target, tokens=tokens, seed=seed)
    for number in range(2):
        first = number * batches.steps_per_pass
        found = [batches.rows(first + step) for step in range(batches.steps_per_pass)]
        assert sorted(np.concatenate(found).tolist()) == list(range(count))
        for rows in found:
            assert padded(rows, source, target) <= tokens or len(rows) == 1
    for by_length in (False, True):
        found = list(in_order(source, target, tokens=tokens, by_length=by_length))
        assert sorted(np.concatenate(found).tolist()) == list(range(count))
        assert all(padded(rows, source, target) <= tokens or len(rows) == 1 for rows in found)


def test_a_batch_depends_on_seed_and_step_alone() -> None:
    sides = lengths(500)
    steps = [0, 90, 3, 41, 700, 3, 0, 90]
    walked = TokenBatches(*sides, tokens=256, seed=1)
    for step in steps:
        assert np.array_equal(walked.rows(step), TokenBatches(*sides, tokens=256, seed=1).rows(step))
    assert not np.array_equal(walked.rows(0), TokenBatches(*sides, tokens=256, seed=2).rows(0))


def test_passes_differ_in_batches_and_in_their_order() -> None:
    source = np.repeat([5, 10, 20], 40)
    batches = TokenBatches(source, source, tokens=100, seed=0)
    count = batches.steps_per_pass
    one, two = ([batches.rows(first + step) for step in range(count)] for first in (0, count))
    assert {frozenset(rows.tolist()) for rows in one} != {frozenset(rows.tolist()) for rows in two}
    assert [source[rows[0]] for rows in one] != [source[rows[0]] for rows in two]


def test_sentences_of_like_length_come_together() -> None:
    source, target = lengths(2000)
    longest = np.maximum(source, target)
    batches = TokenBatches(source, target, tokens=400, seed=0)
    spans = [np.ptp(longest[batches.rows(step)]) for step in range(batches.steps_per_pass)]
    assert np.mean(spans) < 1


def test_order_of_the_data_is_kept_unless_lengths_are_asked_for() -> None:
    source, target = lengths(300)
    assert np.concatenate(list(in_order(source, tokens=100))).tolist() == list(range(300))
    sorted_rows = np.concatenate(list(in_order(source, target, tokens=100, by_length=True)))
    assert (np.diff(np.maximum(source, target)[sorted_rows]) >= 0).all()


def test_a_sentence_longer_than_the_tokens_is_a_batch_of_its_own() -> None:
    source = np.array([3, 100, 4, 3])
    found = [rows.tolist() for rows in in_order(source, tokens=8)]
    assert found == [[0], [1], [2, 3]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": 0}, "tokens must be 1 or more, not 0"),
        ({"seed": -1}, "seed must be 0 or more, not -1"),
        ({"source_lengths": np.ones(2, int)}, r"of shapes \[\(2,\), \(3,\)\]"),
        ({"source_lengths": np.ones(0, int), "target_lengths": np.ones(0, int)}, "at least one sentence"),
    ],
)
def test_what_makes_no_batches_is_refused(change: dict, message: str) -> None:
    given_values = {"source_lengths": np.ones(3, int), "target_lengths": np.ones(3, int), "tokens": 4, "seed": 0}
    with pytest.raises(ValueError, match=message):
        TokenBatches(**(given_values | change))
    with pytest.raises(ValueError, match="step must be 0 or more, not -1"):
        TokenBatches(**given_values).rows(-1)
