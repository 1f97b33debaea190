"""The language model decodes as it was trained."""

import math

import pytest
import torch

from momentum_transformer import (
    Encoder,
    MomentumResidual,
    SoftmaxAttention,
)
from momentum_transformer.layers.presets import ModernBlock
from momentum_transformer.models.language_model import LanguageModel
from tests.family import mixers

MIXERS = mixers("softmax", "linear", "momentum", "gated delta")


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("positions", [True, False])
@pytest.mark.parametrize("mixer", ["momentum", "softmax"])
def test_prefill_and_steps_equal_the_whole(mixer: str, positions: bool, tied: bool) -> None:
    torch.manual_seed(0)
    encoder = Encoder(2, 16, 2, attention=MIXERS[mixer], residual=MomentumResidual(beta=0.9))
    model = LanguageModel(11, encoder, positions=positions, tied=tied).double().eval()
    tokens = torch.randint(0, 11, (3, 9))
    whole = model(tokens)
    logits, state = model.prefill(tokens[:, :4])
    outputs = [logits]
    for i in range(4, 9):
        logits, state = model.step(tokens[:, i], state)
        outputs.append(logits[:, None])
    assert torch.allclose(torch.cat(outputs, 1), whole, atol=1e-12)


@pytest.mark.parametrize("mixer", MIXERS)
def test_packed_documents_are_what_they_are_apart(mixer: str) -> None:
    torch.manual_seed(0)
    model = LanguageModel(11, Encoder(2, 16, 2, attention=MIXERS[mixer], block=ModernBlock()), tied=True)
    model = model.double().eval()
    tokens = torch.randint(0, 11, (2, 9))
    reset = torch.zeros(2, 9, dtype=torch.bool)
    reset[0, [0, 4]] = reset[1, [6, 7]] = True
    apart = [
        torch.cat([model(row[None, a:b]) for a, b in ranges], 1)
        for row, ranges in zip(tokens, [((0, 4), (4, 9)), ((0, 6), (6, 7), (7, 9))], strict=True)
    ]
    assert torch.allclose(model(tokens, reset=reset), torch.cat(apart), atol=1e-12)


def test_a_language_model_must_be_causal() -> None:
    with pytest.raises(ValueError, match="causal=True"):
        LanguageModel(5, Encoder(1, 8, 2, causal=False))


def test_without_positions_equal_tokens_look_alike() -> None:
    torch.manual_seed(0)
    same = torch.full((1, 6), 3)
    for positions in (True, False):
        model = LanguageModel(5, Encoder(2, 8, 2, attention=SoftmaxAttention()), positions=positions).eval()
        assert torch.allclose(model(same), model(same)[:, :1].expand(-1, 6, -1), atol=1e-6) != positions


def test_logits_of_some_positions_are_those_of_all() -> None:
    torch.manual_seed(0)
    model = LanguageModel(5, Encoder(2, 8, 2)).double().eval()
    tokens = torch.randint(0, 5, (3, 6))
    mask = torch.rand(3, 6) > 0.5
    assert torch.allclose(model(tokens, mask), model(tokens)[mask], atol=1e-12)


@pytest.mark.parametrize("mixer", ["softmax", "gated delta"])
def test_a_tied_model_begins_by_knowing_nothing(mixer: str) -> None:
    """Its loss is that of a guess: no token expects itself because its embedding is still in the residual stream."""
    torch.manual_seed(0)
    encoder = Encoder(4, 128, 4, attention=MIXERS[mixer], block=ModernBlock())
    model = LanguageModel(256, encoder, positions=False, tied=True).eval()
    tokens = torch.randint(0, 256, (4, 33))
    loss = torch.nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    assert loss.item() == pytest.approx(math.log(256), abs=0.1)
