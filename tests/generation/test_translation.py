"""Refinement and word-by-word translation give every sentence what it would get alone."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from momentum_transformer.generation.sentences import refine, translate, translate_greedily
from momentum_transformer.models import NonAutoregressiveTranslator

from ..models.sentences import MIXERS, refining, sentences, wordwise

LENGTHS = (5, 1, 7, 7, 3, 4, 9, 2)


def by_hand(model: NonAutoregressiveTranslator, source: Tensor, length: int, steps: int) -> Iterator[list[int]]:
    """One sentence alone, every step, whether it has come to rest or not."""
    mask = torch.ones(1, length, dtype=torch.bool)
    encoded = model.encode(source, torch.ones_like(source, dtype=torch.bool))
    x = model.first_input(encoded, torch.tensor([length]))
    for i in range(steps + 1):
        hidden = model.decode(encoded, x, mask, first=i == 0)
        tokens = model.logits(hidden, first=i == 0).argmax(-1)
        yield tokens[0].tolist()
        x = model.next_input(tokens, hidden)


@pytest.mark.parametrize("mixer", MIXERS)
def test_each_step_is_that_of_the_sentence_alone(mixer: str) -> None:
    model, (source, mask) = refining(mixer), sentences(*LENGTHS)
    lengths = torch.tensor([4, 6, 1, 8, 3, 5, 9, 2])
    shown = list(refine(model, source, mask, steps=3, lengths=lengths))
    assert len(shown) == 4
    for row, length in enumerate(lengths.tolist()):
        alone = list(by_hand(model, source[row : row + 1, : LENGTHS[row]], length, 3))
        assert [tokens[row, :length].tolist() for tokens, _ in shown] == alone
    for tokens, real in shown:
        assert (real.sum(1) == lengths).all()
        assert (tokens[~real] == model.padding).all()
    assert torch.equal(translate(model, source, mask, steps=3, lengths=lengths)[0], shown[-1][0])


@pytest.mark.parametrize("mixer", MIXERS)
def test_sentences_that_have_come_to_rest_leave_the_batch(mixer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, (source, mask) = refining(mixer), sentences(*LENGTHS)
    batches, decode = [], model.decode

    def watched(encoded: Any, x: Tensor, *arguments: Any, **options: Any) -> Tensor:
        batches.append(len(x))
        return decode(encoded, x, *arguments, **options)

    monkeypatch.setattr(model, "decode", watched)
    shown = list(refine(model, source, mask, steps=50, until_fixed=True))
    assert batches == sorted(batches, reverse=True)
    assert 0 < batches[-1] < batches[0]
    assert len(shown) < 51
    _, real = shown[0]
    for row in range(len(LENGTHS)):
        length = int(real[row].sum())
        alone = list(by_hand(model, source[row : row + 1, : LENGTHS[row]], length, len(shown) - 1))
        rest = next((i for i in range(1, len(alone)) if alone[i] == alone[i - 1]), len(alone) - 1)
        expected = alone[: rest + 1] + [alone[rest]] * (len(alone) - rest - 1)
        assert [tokens[row, :length].tolist() for tokens, _ in shown] == expected
    assert torch.equal(shown[-1][0], shown[-2][0])


def test_predicted_lengths_are_used_where_none_are_given() -> None:
    model, (source, mask) = refining("momentum"), sentences(*LENGTHS)
    tokens, real = translate(model, source, mask, steps=0)
    assert torch.equal(real.sum(1), model.predict_lengths(model.encode(source, mask)))
    assert tokens.shape == real.shape


def test_what_is_yielded_stays_as_it_was() -> None:
    model, (source, mask) = refining("linear"), sentences(*LENGTHS)
    steps = refine(model, source, mask, steps=2)
    first, _ = next(steps)
    kept = first.clone()
    assert not torch.is_inference_mode_enabled()
    list(steps)
    assert torch.equal(first, kept)


@pytest.mark.parametrize("mixer", MIXERS)
def test_greedy_words_are_the_most_likely_ones(mixer: str) -> None:
    model, (source, mask) = wordwise(mixer), sentences(*LENGTHS)
    with torch.no_grad():  # some sentences are to end before their limit
        model.decoder.embedding[model.end] *= 1.5
    tokens, real = translate_greedily(model, source, mask)
    assert len({int(n) for n in real.sum(1)}) > 1
    for row, n in enumerate(real.sum(1).tolist()):
        s = LENGTHS[row]
        words = tokens[row : row + 1, :n]
        logits = model(source[row : row + 1, :s], mask[row : row + 1, :s], words, real[row : row + 1, :n])
        assert torch.equal(logits.argmax(-1), words[0])
        ended = words[0] == model.end
        assert not ended[:-1].any()
        assert ended[-1] or n == 2 * s + 10
        assert (tokens[row, n:] == model.padding).all()


def test_the_limit_is_kept() -> None:
    model, (source, mask) = wordwise("softmax"), sentences(*LENGTHS)
    tokens, real = translate_greedily(model, source, mask, limit=3)
    assert tokens.shape[1] <= 3
    assert real.sum(1).max() <= 3


def test_wrong_requests_are_named() -> None:
    model, (source, mask) = refining("linear"), sentences(3, 2)
    with pytest.raises(ValueError, match="steps must be 0 or more, not -1"):
        refine(model, source, mask, steps=-1)
    with pytest.raises(ValueError, match=r"steps must be a whole number, not 1\.5"):
        refine(model, source, mask, steps=1.5)
    with pytest.raises(ValueError, match="lengths must be a tensor, not list"):
        refine(model, source, mask, steps=1, lengths=[3, 2])
    with pytest.raises(ValueError, match=r"lengths must be int64 of shape \(2,\), not torch.int64 of shape \(3,\)"):
        refine(model, source, mask, steps=1, lengths=torch.tensor([1, 2, 3]))
    with pytest.raises(ValueError, match="lengths must be 1 or more, not 0"):
        translate(model, source, mask, steps=1, lengths=torch.tensor([1, 0]))
    with pytest.raises(ValueError, match="source_mask must be bool"):
        translate(model, source, mask.long(), steps=1)
    with pytest.raises(ValueError, match=r"source must have shape \(batch, length\)"):
        translate(model, source[0], mask[0], steps=1)
    with pytest.raises(ValueError, match="limit must be 1 or more, not 0"):
        translate_greedily(wordwise("linear"), source, mask, limit=0)
    with pytest.raises(ValueError, match=r"limit must be a whole number, not 2\.5"):
        translate_greedily(wordwise("linear"), source, mask, limit=2.5)
    with pytest.raises(ValueError, match=r"call model.eval\(\)"):
        refine(model.train(), source, mask, steps=1)
