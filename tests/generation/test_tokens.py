"""Tokens are written as the model would score them, whatever writes them; a seed decides which."""

from typing import Any

import pytest
import torch

from momentum_transformer import Encoder
from momentum_transformer.generation import tokens as generation
from momentum_transformer.generation.tokens import Sampling, Writer
from momentum_transformer.layers.presets import ModernBlock, PaperBlock
from momentum_transformer.models.language_model import LanguageModel
from tests.family import mixers

MIXERS = mixers("softmax", "momentum", "gated delta")


def language_model(mixer: str, *, modern: bool = True, positions: bool = False) -> LanguageModel:
    torch.manual_seed(0)
    block = ModernBlock() if modern else PaperBlock()
    encoder = Encoder(2, 16, 2, attention=MIXERS[mixer], block=block)
    model = LanguageModel(11, encoder, positions=positions, tied=modern)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return model.double()


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("modern", [True, False])
@pytest.mark.parametrize("mixer", MIXERS)
def test_the_most_likely_tokens_are_those_of_the_model(
    mixer: str, modern: bool, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not native:
        monkeypatch.setattr(generation, "can_decode", lambda encoder: False)
    model = language_model(mixer, modern=modern)
    written = list(Writer(model, [1, 2, 3], tokens=20, context=None).write(Sampling(temperature=0)))
    row = [1, 2, 3]
    for token in written:
        assert token == int(model.eval()(torch.tensor([row]))[0, -1].argmax())
        row.append(token)
    assert len(written) == 20


@pytest.mark.parametrize("prompt", [3, 8, 20])
def test_a_model_with_positions_never_sees_more_than_its_context(prompt: int) -> None:
    model = language_model("softmax", positions=True)
    given = [i % 11 for i in range(prompt)]
    written = list(Writer(model, given, tokens=30, context=8).write(Sampling(temperature=0)))
    row, start = list(given), max(0, prompt - 8)
    for token in written:
        if len(row) - start > 8:
            start = len(row) - 4
        assert token == int(model.eval()(torch.tensor([row[start:]]))[0, -1].argmax())
        row.append(token)


def test_a_seed_decides_and_training_goes_on_as_it_was() -> None:
    model = language_model("momentum").train()
    before = torch.random.get_rng_state()
    texts = [list(Writer(model, [0], tokens=40, context=None).write(Sampling(seed=seed))) for seed in (0, 0, 1)]
    assert texts[0] == texts[1] != texts[2]
    assert torch.equal(torch.random.get_rng_state(), before)
    assert model.training


def test_top_k_and_top_p_leave_the_unlikely_out() -> None:
    logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()
    generator = torch.Generator().manual_seed(0)

    def seen(**options: float) -> set[int]:
        return {Sampling(temperature=1.0, **options).choose(logits, generator) for _ in range(300)}

    assert seen() == {0, 1, 2, 3}
    assert seen(top_k=2) == {0, 1}
    assert seen(top_p=0.5) == {0}
    assert seen(top_p=0.6) == {0, 1}
    assert seen(top_p=0.9, top_k=3) == {0, 1, 2}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -1.0}, "temperature must be 0 or more"),
        ({"temperature": float("nan")}, "temperature must be 0 or more"),
        ({"top_k": -1}, "top-k must be 1 or more"),
        ({"top_p": 0.0}, "top-p must be above 0"),
        ({"top_p": None}, "top-p must be a number, not NoneType"),
        ({"top_k": 2.5}, "top-k must be a whole number, not 2.5"),
        ({"seed": 0.5}, "seed must be a whole number, not 0.5"),
    ],
)
def test_impossible_sampling_is_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sampling(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokens": -1}, "tokens must be 0 or more, not -1"),
        ({"tokens": 2.5}, "tokens must be a whole number, not 2.5"),
        ({"context": 0}, "context must be 1 or more, not 0"),
    ],
)
def test_impossible_lengths_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Writer(language_model("momentum"), [1], **{"tokens": 1, "context": None, **options})


def test_the_state_of_a_recurrence_does_not_grow_and_that_of_softmax_does() -> None:
    sizes = {}
    for mixer in ("momentum", "softmax"):
        for count in (5, 50):
            writer = Writer(language_model(mixer), [0], tokens=count, context=None)
            list(writer.write(Sampling()))
            sizes[mixer, count] = writer.state_bytes()
    assert sizes["momentum", 5] == sizes["momentum", 50] > 0
    assert sizes["softmax", 50] > 5 * sizes["softmax", 5]
