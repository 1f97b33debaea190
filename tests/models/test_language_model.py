"""The language model decodes as it was trained."""

import pytest
import torch

from momentum_transformer import Encoder, MomentumAttention, MomentumResidual, SoftmaxAttention
from momentum_transformer.models.language_model import LanguageModel


@pytest.mark.parametrize("mixer", [MomentumAttention(beta=0.6), SoftmaxAttention()], ids=["momentum", "softmax"])
def test_prefill_and_steps_equal_the_whole(mixer: MomentumAttention | SoftmaxAttention) -> None:
    torch.manual_seed(0)
    model = LanguageModel(11, Encoder(2, 16, 2, attention=mixer, residual=MomentumResidual(beta=0.9))).double().eval()
    tokens = torch.randint(0, 11, (3, 9))
    whole = model(tokens)
    logits, state = model.prefill(tokens[:, :4])
    outputs = [logits]
    for i in range(4, 9):
        logits, state = model.step(tokens[:, i], state)
        outputs.append(logits[:, None])
    assert torch.allclose(torch.cat(outputs, 1), whole, atol=1e-12)


def test_a_language_model_must_be_causal() -> None:
    with pytest.raises(ValueError, match="causal=True"):
        LanguageModel(5, Encoder(1, 8, 2, causal=False))
