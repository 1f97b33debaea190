"""Translation word by word: the usual Transformer, made of the same layers; a teacher, and a yardstick."""

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..layers.block import Source
from ..layers.residual import Residual
from ..layers.situation import Mixer
from .summary import summary
from .translation_layers import Encoded, TranslationStack, check_sentences, check_targets, encode


class TranslatorState(NamedTuple):
    """What the decoder remembers of the words so far, and what it sees of the source."""

    layers: tuple[Any, ...]  # of the self attentions; None before the first word
    sources: tuple[Source, ...]
    position: int  # of the next word


class AutoregressiveTranslator(nn.Module):
    """An encoder, and a causal decoder whose layers attend to the encoder's last layer.

    logits = model(source, source_mask, target, target_mask)  # training: every word at once, given those before it

    state = model.start(model.encode(source, source_mask))
    logits, state = model.step(words, state)                  # translation: `generation.sentences` does it

    Args:
        start: the token before the first word.
        end: the token after the last word, which targets end with.
    """

    __repr__ = summary

    def __init__(
        self,
        vocabulary: int,
        *,
        depth: int,
        width: int,
        heads: int,
        feedforward: int,
        attention: Mixer,
        residual: Residual,
        dropout: float,
        padding: int = 1,
        start: int = 2,
        end: int = 3,
    ) -> None:
        super().__init__()
        if vocabulary <= max(padding, start, end):
            raise ValueError(f"vocabulary must hold tokens {padding}, {start} and {end}, not {vocabulary} tokens")
        self.vocabulary, self.padding, self.start_token, self.end = vocabulary, padding, start, end

        stack = partial(
            TranslationStack,
            vocabulary,
            depth=depth,
            width=width,
            heads=heads,
            feedforward=feedforward,
            attention=attention,
            residual=residual,
            dropout=dropout,
        )
        self.encoder = stack()
        self.decoder = stack(causal=True, sights=("own", "cross"))

    def forward(
        self, source: Tensor, source_mask: Tensor, target: Tensor, target_mask: Tensor, *, scored: bool = False
    ) -> Any:
        """Logits (real, V) at the real target positions, whose labels are `target[target_mask]`; with `scored` in
        their place a `Guess`, loss and tokens.
        """
        encoded = self.encode(source, source_mask)
        check_targets(target, target_mask, source, self.vocabulary)
        sources = self._sources(encoded)
        shifted = torch.cat([torch.full_like(target[:, :1], self.start_token), target[:, :-1]], 1)
        places = self.decoder.places(target.shape[1])
        # what comes after a sentence cannot change it: no mask
        layers, _ = self.decoder(self.decoder.embed(shifted) + places, mask=None, places=places, sources=sources)
        hidden = layers[-1][target_mask]
        return self.decoder.guess(hidden, target[target_mask]) if scored else self.decoder.logits(hidden)

    def encode(self, source: Tensor, source_mask: Tensor) -> Encoded:
        check_sentences("source", source, source_mask, self.vocabulary)
        return encode(self.encoder, source, source_mask)

    def start(self, encoded: Encoded) -> TranslatorState:
        """The state before the first step, whose tokens are `start_token`."""
        return TranslatorState((None,) * len(self.decoder.layers), self._sources(encoded), 0)

    def step(self, tokens: Tensor, state: TranslatorState) -> tuple[Tensor, TranslatorState]:
        """One more token (b,): logits (b, V) of the next, and the state after it."""
        if tokens.shape != state.sources[0].k.shape[:1]:
            raise ValueError(
                f"tokens must have shape ({state.sources[0].k.shape[0]},) like this state, not {tuple(tokens.shape)}"
            )
        places = self.decoder.places(1, first=state.position)
        layers, after = self.decoder(
            self.decoder.embed(tokens[:, None]) + places,
            mask=None,
            places=places,
            sources=state.sources,
            states=state.layers,
            return_states=True,
        )
        logits = self.decoder.logits(layers[-1][:, 0])
        return logits, TranslatorState(after, state.sources, state.position + 1)

    def _sources(self, encoded: Encoded) -> tuple[Source, ...]:
        return self.decoder.sources([encoded.layers[-1]] * len(self.decoder.layers), encoded.mask)
