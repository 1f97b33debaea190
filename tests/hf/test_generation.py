"""`generate` in all its ways, on a cache of constant size that can be reordered, repeated and taken back."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'momentum-transformer[hf]'")

from transformers import DynamicCache

from momentum_transformer.hf import MomentumCache, MomentumForCausalLM
from momentum_transformer.ops.state import state_bytes

from .small import MIXERS, language_model, tokens

CLOSE = {"rtol": 1e-10, "atol": 1e-10}
NEW = 6
KINDS = [*((mixers, "none") for mixers in MIXERS), ("hybrid", "sinusoidal"), ("hybrid", "learned")]
QUICK = ("momentum", "window", "hybrid")
SOME_SLOW = [pytest.param(mixers, marks=() if mixers in QUICK else pytest.mark.slow) for mixers in MIXERS]


def greedy(model: MomentumForCausalLM, prompt: Tensor, count: int = NEW) -> Tensor:
    """Token by token, each from the whole sequence before it."""
    for _ in range(count):
        prompt = torch.cat([prompt, model(prompt, use_cache=False).logits[:, -1:].argmax(-1)], 1)
    return prompt


def generated(model: MomentumForCausalLM, prompt: Tensor, **options: Any) -> Tensor:
    anything: Any = model  # its `generate` is typed for classes of Transformers' own
    made: Tensor = anything.generate(prompt, **({"max_new_tokens": NEW, "do_sample": False} | options))
    return made


@pytest.mark.parametrize(("mixers", "positions"), KINDS)
@torch.no_grad()
def test_greedy_generation_is_the_whole_sequence_again_and_again(mixers: str, positions: str) -> None:
    model = language_model(mixers, positions=positions)
    prompt = tokens(2, 5)
    expected = greedy(model, prompt)
    assert torch.equal(generated(model, prompt), expected)
    assert torch.equal(generated(model, prompt, use_cache=False), expected)
    assert torch.equal(generated(model, prompt, prefill_chunk_size=2), expected)


@pytest.mark.parametrize(("mixers", "positions"), KINDS)
@torch.no_grad()
def test_prompts_of_different_lengths_are_padded_on_the_left(mixers: str, positions: str) -> None:
    model = language_model(mixers, positions=positions)
    long, short = tokens(1, 7), tokens(1, 3, seed=2)
    batch = torch.cat([long, torch.cat([tokens(1, 4, seed=9), short], 1)])
    mask = torch.ones(2, 7, dtype=torch.long)
    mask[1, :4] = 0
    for options in ({}, {"prefill_chunk_size": 3}):
        found = generated(model, batch, attention_mask=mask, **options)
        assert torch.equal(found[0], generated(model, long)[0])
        assert torch.equal(found[1, 4:], generated(model, short)[0])


@pytest.mark.parametrize("mixers", ["momentum", "window", "hybrid"])
@torch.no_grad()
def test_beam_search_finds_what_it_finds_without_a_cache(mixers: str) -> None:
    model = language_model(mixers)
    prompt = tokens(2, 5)
    options: dict[str, Any] = {"num_beams": 3, "num_return_sequences": 2}
    with_cache = generated(model, prompt, **options)
    assert torch.equal(with_cache, generated(model, prompt, use_cache=False, **options))
    assert with_cache.shape[0] == 4


@torch.no_grad()
def test_samples_are_those_of_the_seed_with_and_without_a_cache() -> None:
    model = language_model()
    found = []
    for use_cache in (True, False):
        torch.manual_seed(7)
        options = {"do_sample": True, "temperature": 0.7, "top_k": 5, "num_return_sequences": 3}
        found.append(generated(model, tokens(2, 5), use_cache=use_cache, **options))
    assert torch.equal(*found)


@pytest.mark.parametrize("mixers", SOME_SLOW)
@torch.no_grad()
def test_guesses_of_an_assistant_change_nothing_but_the_number_of_calls(mixers: str) -> None:
    model, assistant = language_model(mixers), language_model("retention")
    prompt = tokens(1, 6)
    expected = greedy(model, prompt, 20)
    calls = 0

    def count(*_: Any) -> None:
        nonlocal calls
        calls += 1

    handle = model.register_forward_pre_hook(count)
    assert torch.equal(generated(model, prompt, max_new_tokens=20, prompt_lookup_num_tokens=3), expected)
    calls = 0
    assert torch.equal(generated(model, prompt, max_new_tokens=20, assistant_model=model), expected)
    handle.remove()
    assert calls < 45  # the assistant is the model itself: 20 guesses, and far fewer verifications
    assert torch.equal(generated(model, prompt, max_new_tokens=20, assistant_model=assistant), expected)


@pytest.mark.parametrize("mixers", ["linear", "momentum", "retention", "delta", "gated delta", "window"])
@torch.no_grad()
def test_the_cache_does_not_grow(mixers: str) -> None:
    model = language_model(mixers)
    cache = MomentumCache()
    sizes = []
    for _ in range(8):
        model(tokens(2, 4), past_key_values=cache)
        sizes.append(state_bytes(cache.state))
    assert len(set(sizes)) == 1
    assert cache.get_seq_length() == 32


@pytest.mark.parametrize("mixers", MIXERS)
@torch.no_grad()
def test_text_in_pieces_gives_the_logits_of_the_whole(mixers: str) -> None:
    model = language_model(mixers, positions="sinusoidal")
    ids = tokens(2, 11)
    mask = torch.ones(2, 11, dtype=torch.long)
    mask[0, :3] = mask[1, 5] = 0
    expected = model(ids, attention_mask=mask, use_cache=False).logits
    cache, found = MomentumCache(), []
    for start, stop in ((0, 4), (4, 5), (5, 6), (6, 11)):
        found.append(model(ids[:, start:stop], attention_mask=mask[:, :stop], past_key_values=cache).logits)
    torch.testing.assert_close(torch.cat(found, 1)[mask.bool()], expected[mask.bool()], **CLOSE)


@torch.no_grad()
def test_a_cache_carries_a_conversation_on() -> None:
    model = language_model("hybrid", positions="sinusoidal")
    cache = MomentumCache()
    prompt = tokens(1, 5)
    model(prompt, past_key_values=cache)
    kept = copy.deepcopy(cache)
    more = torch.cat([prompt, tokens(1, 3, seed=4)], 1)
    expected = greedy(model, more)
    assert torch.equal(generated(model, more, past_key_values=cache), expected)
    assert kept.get_seq_length() == 5  # a copy is not touched
    assert torch.equal(generated(model, more, past_key_values=kept), expected)


@torch.no_grad()
def test_rows_of_a_cache_are_reordered_repeated_and_selected() -> None:
    model = language_model("hybrid", positions="sinusoidal")
    ids, following = tokens(3, 5), tokens(3, 2, seed=3)
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1], [1, 1, 1, 1, 1]])

    def rows(order: list[int]) -> Tensor:
        cache = MomentumCache()
        model(ids[order], attention_mask=mask[order], past_key_values=cache)
        found: Tensor = model(following[order], past_key_values=cache).logits
        return found

    def moved(order: list[int], move: str, argument: Any) -> Tensor:
        cache = MomentumCache()
        model(ids, attention_mask=mask, past_key_values=cache)
        getattr(cache, move)(argument)
        assert cache.batch_size == len(order)
        found: Tensor = model(following[order], past_key_values=cache).logits
        return found

    for order, move, argument in (
        ([2, 0, 0], "reorder_cache", torch.tensor([2, 0, 0])),
        ([0, 0, 1, 1, 2, 2], "batch_repeat_interleave", 2),
        ([0, 2], "batch_select_indices", torch.tensor([0, 2])),
    ):
        torch.testing.assert_close(moved(order, move, argument), rows(order), **CLOSE)


@torch.no_grad()
def test_a_cropped_cache_is_that_of_the_tokens_that_stay() -> None:
    model = language_model("hybrid", positions="sinusoidal")
    ids = tokens(2, 9)
    mask = torch.ones(2, 9, dtype=torch.long)
    mask[0, :2] = mask[1, 7] = 0
    cache = MomentumCache()
    cache.activate_past_recording()
    model(ids, attention_mask=mask, past_key_values=cache)
    cache.crop(-3)
    assert cache.get_seq_length() == 6
    following = tokens(2, 2, seed=3)
    found = model(following, past_key_values=cache).logits
    whole = torch.cat([ids[:, :6], following], 1)
    expected = model(whole, attention_mask=torch.cat([mask[:, :6], torch.ones(2, 2)], 1)).logits[:, -2:]
    torch.testing.assert_close(found, expected, **CLOSE)


@torch.no_grad()
def test_a_cache_that_cannot_serve_says_why() -> None:
    model = language_model("momentum")
    cache = MomentumCache()
    model(tokens(2, 4), past_key_values=cache)
    with pytest.raises(ValueError, match=r"call activate_past_recording\(\) before"):
        cache.crop(-1)
    with pytest.raises(ValueError, match="minus the number of tokens"):
        cache.crop(1)
    with pytest.raises(ValueError, match="a batch of 2, not 3"):
        model(tokens(3, 1), past_key_values=cache)
    with pytest.raises(ValueError, match="must be a MomentumCache, not DynamicCache"):
        model(tokens(2, 4), past_key_values=DynamicCache())
    with pytest.raises(ValueError, match="state must be a PartsState, not MomentumState"):
        language_model("gated delta")(tokens(2, 1), past_key_values=cache)
    with pytest.raises(ValueError, match="cache_implementation must be left out, not 'static'"):
        generated(model, tokens(1, 3), cache_implementation="static")
    with pytest.raises(NotImplementedError, match="serves our models only"):
        cache.update(None, None, 0)


@torch.no_grad()
def test_more_guesses_than_usual_may_be_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("momentum_transformer.hf.encoder_cache.ROLLBACK", 4)
    model, assistant = language_model("momentum"), language_model("retention")
    assistant.generation_config.num_assistant_tokens = 9
    prompt = tokens(1, 4).repeat(1, 6)
    expected = greedy(model, prompt, 12)
    assert torch.equal(generated(model, prompt, max_new_tokens=12, prompt_lookup_num_tokens=10), expected)
    assert torch.equal(generated(model, prompt, max_new_tokens=12, assistant_model=assistant), expected)


@pytest.mark.parametrize("count", [6, 30])
@torch.no_grad()
def test_hidden_states_are_the_same_while_tokens_can_be_taken_back(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("momentum_transformer.hf.encoder_cache.ROLLBACK", 8)
    model, ids = language_model("hybrid"), tokens(2, count)
    expected = model(ids, use_cache=False, output_hidden_states=True).hidden_states
    cache = MomentumCache()
    cache.activate_past_recording()
    for rows in (slice(0, count // 2), slice(count // 2, None)):
        found = model(ids[:, rows], past_key_values=cache, output_hidden_states=True).hidden_states
        assert len(found) == len(expected)
        for x, y in zip(found, expected, strict=True):
            torch.testing.assert_close(x, y[:, rows], **CLOSE)
    cache.crop(-1)
    assert cache.get_seq_length() == count - 1
