"""Corrupted references: as many places as the share says, three kinds of damage, padding untouched."""

import math

import pytest
import torch
from torch import Tensor

from momentum_transformer.data.noise import COPY, REPLACE, SWAP, corrupt

VOCABULARY = 5000


def sentences(*lengths: int, n: int = 24) -> tuple[Tensor, Tensor]:
    """Rows of different numbers below 4,000, so that each damage can be seen; padded with 1."""
    target = torch.ones(len(lengths), n, dtype=torch.long)
    for row, length in enumerate(lengths):
        target[row, :length] = torch.arange(10, 10 + length) + 30 * (row % 100)
    return target, torch.tensor(lengths)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def by_hand(target: Tensor, lengths: Tensor, weight: float, seed: int) -> list[list[int]]:
    """The same draws, then Lee et al.'s loop over sentences and places."""
    draws = generator(seed)
    b, n = target.shape
    chance = torch.rand(b, n - 1, generator=draws)
    counts = [min(max(math.floor(weight * length), 1), length - 1) for length in lengths.tolist()]
    kinds = torch.randint(3, (b, max(counts)), generator=draws).tolist()
    pieces = torch.randint(4, VOCABULARY, (b, max(counts)), generator=draws).tolist()
    result = target.tolist()
    for row, sentence in enumerate(result):
        places = sorted(range(int(lengths[row]) - 1), key=lambda place: -chance[row, place])
        for i, place in enumerate(places[: counts[row]]):
            if kinds[row][i] == COPY:
                sentence[place + 1] = sentence[place]
            elif kinds[row][i] == REPLACE:
                sentence[place] = pieces[row][i]
            elif kinds[row][i] == SWAP:
                sentence[place], sentence[place + 1] = sentence[place + 1], sentence[place]
    return result


@pytest.mark.parametrize("weight", [0.01, 0.1, 0.367, 0.633, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_all_sentences_at_once_are_as_one_by_one(weight: float, seed: int) -> None:
    target, lengths = sentences(24, 2, 13, 1, 7, 20)
    result = corrupt(target, lengths, vocabulary=VOCABULARY, weight=weight, generator=generator(seed))
    assert result.tolist() == by_hand(target, lengths, weight, seed)


def test_the_three_kinds_are_equally_likely() -> None:
    target, lengths = sentences(*[10] * 9000, n=10)
    result = corrupt(target, lengths, vocabulary=VOCABULARY, weight=0.1, generator=generator())
    changed = result != target
    swapped = changed.sum(1) == 2
    copied = (changed[:, 1:] & (result[:, 1:] == result[:, :-1])).any(1)
    assert abs(swapped.double().mean() - 1 / 3) < 0.02
    assert abs(copied.double().mean() - 1 / 3) < 0.02
    assert (changed.sum(1) >= 1).double().mean() > 0.99  # a random piece may be the one that was there
    first = changed.double().argmax(1)[swapped]
    assert (torch.bincount(first, minlength=9)[:9] > 9000 / 3 / 9 * 0.7).all()  # every place but the last


def test_padding_single_tokens_and_the_input_stay() -> None:
    target, lengths = sentences(1, 5, 2)
    before = target.clone()
    for seed in range(20):
        result = corrupt(target, lengths, vocabulary=VOCABULARY, weight=1.0, generator=generator(seed))
        padding = torch.arange(target.shape[1]) >= lengths[:, None]
        assert (result[padding] == 1).all()
        assert result[0].tolist() == target[0].tolist()
        assert result[~padding].min() >= 4
        assert result.max() < VOCABULARY
    assert torch.equal(target, before)


def test_nothing_to_do_gives_a_copy() -> None:
    target, lengths = sentences(5, 9)
    for given, size, weight in ((target, lengths, 0.0), (target[:, :1], lengths.clamp(max=1), 0.5)):
        result = corrupt(given, size, vocabulary=VOCABULARY, weight=weight, generator=generator())
        assert torch.equal(result, given)
        assert result.data_ptr() != given.data_ptr()
    assert corrupt(target[:0], lengths[:0], vocabulary=9, weight=0.5, generator=generator()).shape == (0, 24)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weight": 1.5}, "weight is a share of the tokens, 0 to 1, not 1.5"),
        ({"weight": math.nan}, "weight is a share"),
        ({"vocabulary": 4}, "vocabulary must be more than the 4 special tokens, not 4"),
        ({"lengths": torch.tensor([3])}, r"target must be \(b, n\) and lengths \(b,\), not \(2, 24\) and \(1,\)"),
        ({"lengths": torch.tensor([3, 25])}, "lengths must be 0 to 24, not 3 to 25"),
    ],
)
def test_what_cannot_be_is_refused(change: dict, message: str) -> None:
    target, lengths = sentences(5, 9)
    values = {"target": target, "lengths": lengths, "vocabulary": 99, "weight": 0.5, "generator": generator()}
    with pytest.raises(ValueError, match=message):
        corrupt(**(values | change))
