"""Small models of every kind, for the tests of Transformers' interface."""

from typing import Any

import torch
from torch import Tensor, nn

from momentum_transformer.hf import MomentumConfig, MomentumForCausalLM

MIXERS: dict[str, Any] = {
    "softmax": "softmax",
    "window": {"name": "window", "window": 3},
    "linear": "linear",
    "momentum": {"name": "momentum", "beta": 0.6},
    "learned momentum": "learned-momentum",
    "retention": "retention",
    "delta": "delta",
    "gated delta": "gated-delta",
    "momentum delta": "momentum-delta",
    "gated momentum": {"name": "gated-momentum", "convolution": {}},
    "hybrid": ["gated-delta", {"name": "softmax", "convolution": {"taps": 3}}],
}
VOCABULARY = 23


def config(mixers: str = "hybrid", **options: Any) -> MomentumConfig:
    sizes = {"vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    return MomentumConfig(**(sizes | {"mixers": MIXERS[mixers]} | options))


def language_model(mixers: str = "hybrid", **options: Any) -> Any:  # Transformers declares generate for other classes
    torch.manual_seed(0)
    return MomentumForCausalLM(config(mixers, initializer_range=0.5, **options)).double().eval()


def tokens(b: int, n: int, seed: int = 1) -> Tensor:
    return torch.randint(VOCABULARY, (b, n), generator=torch.Generator().manual_seed(seed))


def gradients(model: nn.Module, ids: Tensor) -> dict[str, Tensor]:
    """Of the loss of these tokens, by name."""
    model.zero_grad()
    model(ids, labels=ids).loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}
