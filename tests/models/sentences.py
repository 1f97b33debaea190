"""Small translators and sentences for the tests of both."""

from typing import Any

import torch
from torch import Tensor

from momentum_transformer.models import AutoregressiveTranslator, NonAutoregressiveTranslator
from tests.family import RESIDUALS, mixers

VOCABULARY = 19
MIXERS = mixers("softmax", "linear", "momentum", "gated delta", "momentum delta")


def sizes(mixer: str, residual: str = "plain", **options: Any) -> dict[str, Any]:
    return {
        "depth": 2,
        "width": 16,
        "heads": 2,
        "feedforward": 24,
        "attention": MIXERS[mixer],
        "residual": RESIDUALS[residual],
        "dropout": 0.1,
    } | options


def refining(mixer: str, residual: str = "plain", **options: Any) -> NonAutoregressiveTranslator:
    torch.manual_seed(0)
    return NonAutoregressiveTranslator(VOCABULARY, **sizes(mixer, residual, **options)).double().eval()


def wordwise(mixer: str, residual: str = "plain", **options: Any) -> AutoregressiveTranslator:
    torch.manual_seed(0)
    return AutoregressiveTranslator(VOCABULARY, **sizes(mixer, residual, **options)).double().eval()


def sentences(*lengths: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Random tokens (b, n) of sentences of these lengths, padded with 1, and their mask."""
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    drawn = torch.randint(4, VOCABULARY, mask.shape, generator=torch.Generator().manual_seed(seed))
    return torch.where(mask, drawn, 1), mask
