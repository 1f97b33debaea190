"""Word by word is what was trained: each step gives the logits of the whole."""

import pytest
import torch
from torch.nn import functional

from momentum_transformer.models.autoregressive_translator import AutoregressiveTranslator
from momentum_transformer.ops.state import reorder_state, state_bytes
from tests.family import RESIDUALS

from .sentences import MIXERS, VOCABULARY, sentences, sizes, wordwise

LENGTHS, TARGETS = (5, 1, 7, 6), (6, 3, 1, 5)


@pytest.mark.parametrize("residual", RESIDUALS)
@pytest.mark.parametrize("mixer", MIXERS)
def test_steps_give_the_logits_of_the_whole(mixer: str, residual: str) -> None:
    model = wordwise(mixer, residual)
    (source, source_mask), (target, target_mask) = sentences(*LENGTHS), sentences(*TARGETS, seed=1)
    whole = model(source, source_mask, target, target_mask)
    state = model.start(model.encode(source, source_mask))
    tokens, stepwise = torch.full((4,), 2), []
    for t in range(target.shape[1]):
        logits, state = model.step(tokens, state)
        stepwise.append(logits)
        tokens = target[:, t]
    assert torch.allclose(torch.stack(stepwise, 1)[target_mask], whole, rtol=0, atol=1e-10)


@pytest.mark.parametrize("residual", RESIDUALS)
@pytest.mark.parametrize("mixer", MIXERS)
def test_no_sentence_depends_on_its_batch(mixer: str, residual: str) -> None:
    model = wordwise(mixer, residual)
    (source, source_mask), (target, target_mask) = sentences(*LENGTHS), sentences(*TARGETS, seed=1)
    together = model(source, source_mask, target, target_mask).split(list(TARGETS))
    for row, (s, t) in enumerate(zip(LENGTHS, TARGETS, strict=True)):
        one = slice(row, row + 1)
        alone = model(source[one, :s], source_mask[one, :s], target[one, :t], target_mask[one, :t])
        assert torch.allclose(alone, together[row], rtol=0, atol=1e-10)


@pytest.mark.parametrize("mixer", MIXERS)
def test_a_word_depends_on_those_before_it_only(mixer: str) -> None:
    model = wordwise(mixer)
    (source, source_mask), (target, target_mask) = sentences(5), sentences(6, seed=1)
    changed = target.clone()
    changed[:, 3] = (target[:, 3] - 3) % 15 + 4
    before, after = (model(source, source_mask, words, target_mask) for words in (target, changed))
    assert torch.allclose(before[:4], after[:4], atol=1e-12)
    assert (before[4:] - after[4:]).abs().amax(-1).min() > 1e-6


@pytest.mark.parametrize("mixer", MIXERS)
def test_linear_and_momentum_states_do_not_grow(mixer: str) -> None:
    model, (source, mask) = wordwise(mixer), sentences(4, 2)
    state = model.start(model.encode(source, mask))
    sizes_ = []
    for _ in range(3):
        _, state = model.step(torch.full((2,), 5), state)
        sizes_.append(state_bytes(state))
    assert (sizes_[0] < sizes_[1] < sizes_[2]) if mixer == "softmax" else len(set(sizes_)) == 1


def test_rows_of_a_state_can_be_dropped() -> None:
    model, (source, mask) = wordwise("momentum"), sentences(4, 2, 3)
    _, state = model.step(torch.full((3,), 2), model.start(model.encode(source, mask)))
    words, rows = torch.tensor([4, 5, 6]), torch.tensor([2, 0])
    expected, _ = model.step(words, state)
    found, _ = model.step(words[rows], reorder_state(state, rows))
    assert torch.allclose(found, expected[rows], atol=1e-12)


@pytest.mark.parametrize("mixer", MIXERS)
def test_gradients_reach_every_parameter(mixer: str) -> None:
    model = wordwise(mixer, "adaptive").train()
    (source, source_mask), (target, target_mask) = sentences(*LENGTHS), sentences(*TARGETS, seed=1)
    functional.cross_entropy(model(source, source_mask, target, target_mask), target[target_mask]).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        assert torch.isfinite(parameter.grad).all(), name
        assert parameter.grad.abs().max() > 0 or name.endswith("key.bias"), name


def test_wrong_inputs_are_named() -> None:
    model, (tokens, mask) = wordwise("momentum"), sentences(3, 2)
    with pytest.raises(ValueError, match="source_mask must be bool"):
        model(tokens, mask.float(), tokens, mask)
    with pytest.raises(ValueError, match="target must have tokens from 0 to 18, not"):
        model(tokens, mask, tokens + 18, mask)
    with pytest.raises(ValueError, match="target must have 2 sentences like source, not 1"):
        model(tokens, mask, tokens[:1], mask[:1])
    with pytest.raises(ValueError, match=r"tokens must have shape \(2,\) like this state, not \(3,\)"):
        model.step(torch.tensor([2, 2, 2]), model.start(model.encode(tokens, mask)))
    with pytest.raises(ValueError, match="vocabulary must hold tokens 1, 2 and 19, not 19 tokens"):
        AutoregressiveTranslator(VOCABULARY, **sizes("linear"), end=19)
