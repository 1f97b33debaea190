"""Next-token prediction: tokens and positions in, logits out; the paper's model of the copy task."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..layers.positions import sinusoids
from .encoder import Encoder, EncoderState
from .summary import summary


class LanguageModelState(NamedTuple):
    encoder: EncoderState
    position: Tensor  # (b,)  of the next token


class LanguageModel(nn.Module):
    """Token embedding and fixed positions, half of the width each, side by side; then a causal encoder.

    With `positions=False` the embedding has the whole width, and order is what the encoder makes of it: lengths beyond
    those of training bring nothing that it has not seen.
    """

    __repr__ = summary

    def __init__(self, vocabulary: int, encoder: Encoder, *, positions: bool = True) -> None:
        super().__init__()
        if not encoder.causal:
            raise ValueError("a language model needs Encoder(causal=True)")
        self.positions = positions
        self.embedding = nn.Embedding(vocabulary, encoder.width // 2 if positions else encoder.width)
        self.encoder = encoder
        self.logits = nn.Linear(encoder.width, vocabulary)

    def forward(self, tokens: Tensor, at: Tensor | None = None) -> Tensor:
        """tokens (b, n) → logits (b, n, vocabulary) of the token that comes next.

        With a mask `at` (b, n): (m, vocabulary), of its m positions only, which saves the others.
        """
        y = self.encoder(self._embed(tokens, torch.arange(tokens.shape[1], device=tokens.device)))
        return self.logits(y if at is None else y[at])

    def prefill(self, tokens: Tensor) -> tuple[Tensor, LanguageModelState]:
        """The same, and the state from which `step` goes on."""
        b, n = tokens.shape
        y, state = self.encoder(self._embed(tokens, torch.arange(n, device=tokens.device)), return_state=True)
        return self.logits(y), LanguageModelState(state, torch.full((b,), n, device=tokens.device))

    def step(self, token: Tensor, state: LanguageModelState) -> tuple[Tensor, LanguageModelState]:
        """One more token (b,): logits (b, vocabulary) and the state after it."""
        y, after = self.encoder.step(self._embed(token, state.position), state.encoder)
        return self.logits(y), LanguageModelState(after, state.position + 1)

    def _embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        embedded: Tensor = self.embedding(tokens)
        if not self.positions:
            return embedded
        place = sinusoids(positions, embedded.shape[-1]).to(embedded.dtype)
        return torch.cat([embedded, place.expand(*embedded.shape[:-1], -1)], -1)
