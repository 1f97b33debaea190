"""Next-token prediction: tokens and positions in, logits out; the paper's model of the copy task."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..backend.products import linear
from ..context import refuse_split
from ..layers.linear_layer import Linear
from ..layers.positions import positions_of, sinusoids
from .encoder import Encoder, EncoderState
from .summary import summary

TIED_STD = 0.02  # of a tied embedding at the start


class LanguageModelState(NamedTuple):
    encoder: EncoderState
    position: Tensor  # (b,)  of the next token


class LanguageModel(nn.Module):
    """Token embedding and fixed positions, half of the width each, side by side; then a causal encoder.

    With `tied=True` the embedding has the whole width, positions are added to it, and its transpose makes the logits.
    With `positions=False` the embedding has the whole width, too, and order is what the encoder makes of it: lengths
    beyond those of training bring nothing that it has not seen.

    Args:
        vocabulary: how many tokens there are.
        encoder: a causal one.
        positions: whether tokens are told where they stand.
        tied: whether the embedding also makes the logits.

    Examples:
        >>> model = LanguageModel(256, Encoder(2, 16, 2))
        >>> logits, state = model.prefill(torch.randint(256, (3, 50)))
        >>> logits, state = model.step(logits[:, -1].argmax(-1), state)
    """

    __repr__ = summary

    def __init__(self, vocabulary: int, encoder: Encoder, *, positions: bool = True, tied: bool = False) -> None:
        super().__init__()
        if not encoder.causal:
            raise ValueError("a language model needs Encoder(causal=True)")
        self.positions, self.tied = positions, tied
        beside = positions and not tied
        self.embedding = nn.Embedding(vocabulary, encoder.width // 2 if beside else encoder.width)
        self.encoder = encoder
        if tied:  # small: what enters stays in the residual stream, and its own logit would begin far above the others
            nn.init.normal_(self.embedding.weight, std=TIED_STD)
        else:
            self.logits = Linear(encoder.width, vocabulary)

    def forward(self, tokens: Tensor, at: Tensor | None = None, *, reset: Tensor | None = None) -> Tensor:
        """Logits of the token that comes after each.

        Args:
            tokens: (b, n).
            at: (b, n) True at the m positions whose logits are wanted, which saves the others; None for all.
            reset: (b, n) True where a document begins: no token sees one of an earlier document.

        Returns:
            Logits (b, n, vocabulary), or with `at` (m, vocabulary).
        """
        places = positions_of(tokens.shape[1], tokens.device)
        if reset is not None:
            if self.positions:
                refuse_split("a model with positions, and a text of several documents,")
            places = places - torch.where(reset, places, 0).cummax(1).values
        y = self.encoder(self.embed(tokens, places), reset=reset)
        return self.head(y if at is None else y[at])

    def prefill(self, tokens: Tensor) -> tuple[Tensor, LanguageModelState]:
        """Read a text that is to be continued.

        Args:
            tokens: (b, n).

        Returns:
            The pair of logits (b, n, vocabulary), and of the state from which `step` goes on.
        """
        b, n = tokens.shape
        refuse_split("prefill")
        y, state = self.encoder(self.embed(tokens, positions_of(n, tokens.device)), return_state=True)
        return self.head(y), LanguageModelState(state, torch.full((b,), n, device=tokens.device))

    def step(self, token: Tensor, state: LanguageModelState) -> tuple[Tensor, LanguageModelState]:
        """One more token.

        Args:
            token: (b,).
            state: of `prefill`, or of the step before.

        Returns:
            The pair of logits (b, vocabulary) of the next token, and of the state after this one.
        """
        y, after = self.encoder.step(self.embed(token, state.position), state.encoder)
        return self.head(y), LanguageModelState(after, state.position + 1)

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """What enters the encoder."""
        embedded: Tensor = self.embedding(tokens)
        if self.tied:
            embedded = embedded * math.sqrt(self.encoder.width)
        if not self.positions:
            return embedded
        place = sinusoids(positions, embedded.shape[-1]).to(embedded.dtype)
        if self.tied:
            return embedded + place
        return torch.cat([embedded, place.expand(*embedded.shape[:-1], -1)], -1)

    def head(self, y: Tensor) -> Tensor:
        """Logits of what leaves the encoder."""
        return linear(y, *self.head_weights())

    def head_weights(self) -> tuple[Tensor, Tensor | None]:
        """The weight and the bias of that linear map."""
        return (self.embedding.weight, None) if self.tied else (self.logits.weight, self.logits.bias)
