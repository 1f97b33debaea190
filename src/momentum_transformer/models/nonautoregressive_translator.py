"""Translation by iterative refinement (Lee et al., 2018): all words at once, then all words again and again."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..layers.block import Source
from ..layers.linear_layer import Linear
from ..layers.residual import Residual
from ..layers.situation import Mixer
from .summary import summary
from .token_loss import LOGITS, most_likely
from .translation_layers import (
    Encoded,
    TranslationStack,
    check_sentence_mask,
    check_sentences,
    check_targets,
    encode,
    padding_of,
)


class NonAutoregressiveTranslator(nn.Module):
    """An encoder, decoder 1 for the first guess, and decoder 2 for every refinement of it.

    logits, length_logits = model(source, source_mask, target, target_mask, iterations=4)  # training

    encoded = model.encode(source, source_mask)                                # translation, step by step;
    lengths = model.predict_lengths(encoded)                                   # `generation.sentences` does it
    hidden = model.decode(encoded, model.first_input(encoded, lengths), target_mask, first=True)
    hidden = model.decode(encoded, model.next_input(tokens, hidden), target_mask, first=False)

    Decoder layer ℓ attends to encoder layer ℓ. Masks are honoured everywhere: a sentence's result does not depend on
    its batch.

    Args:
        attention: how tokens mix, in self, positional and cross attention.
        residual: how attention outputs come into x; its memory runs through all attentions of a stack, and starts
            anew with each stack and iteration.
        max_offset: lengths are predicted as that of the source, plus or minus this much.
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
        end: int = 3,
        max_offset: int = 20,
    ) -> None:
        super().__init__()
        if vocabulary <= max(padding, end) or max_offset < 0:
            raise ValueError(
                f"vocabulary must hold padding={padding} and end={end}, and max_offset be 0 or more, not "
                f"vocabulary={vocabulary} and max_offset={max_offset}"
            )
        self.vocabulary, self.padding, self.end, self.max_offset = vocabulary, padding, end, max_offset

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
        self.decoder1 = stack(sights=("own", "positional", "cross"))
        self.decoder2 = stack(sights=("own", "positional", "cross"))
        self.offset = Linear(width, 2 * max_offset + 1)

    def forward(
        self,
        source: Tensor,
        source_mask: Tensor,
        target: Tensor,
        target_mask: Tensor,
        *,
        iterations: int,
        noisy: Sequence[Tensor | None] = (),
        scored: bool = False,
    ) -> tuple[list[Any], Tensor]:
        """Logits (real, V) of each iteration at the real target positions, whose labels are `target[target_mask]`, and
        logits of the length, whose labels are `length_labels`.

        `noisy[i]`, where given, is what iteration i + 1 gets in place of the tokens that iteration i found. With
        `scored`, a `Guess` of each iteration, loss and tokens, takes the place of logits, which are then never kept.
        """
        encoded = self.encode(source, source_mask)
        check_targets(target, target_mask, source, self.vocabulary)
        if iterations < 1:
            raise ValueError(f"iterations must be 1 or more, not {iterations}")
        if len(noisy) >= iterations:
            raise ValueError(
                f"noisy must have at most {iterations - 1} entries, one between each two of {iterations} iterations, "
                f"not {len(noisy)}"
            )
        x = self.first_input(encoded, target_mask.sum(1))
        hidden = self.decode(encoded, x, target_mask, first=True)
        labels = target[target_mask]
        found = [self._found(hidden[target_mask], labels, first=True, scored=scored)]
        sources = self.sources(encoded, first=False) if iterations > 1 else None
        for i in range(iterations - 1):
            tokens = noisy[i] if i < len(noisy) else None
            if tokens is None:
                last = found[-1]
                tokens = self._padded(last.tokens, target_mask) if scored else self.tokens(last, target_mask)
            elif tokens.shape != target.shape:
                raise ValueError(
                    f"noisy[{i}] must have the shape of target, {tuple(target.shape)}, not {tuple(tokens.shape)}"
                )
            x = self.next_input(tokens, hidden)
            hidden = self.decode(encoded, x, target_mask, first=False, sources=sources)
            found.append(self._found(hidden[target_mask], labels, first=False, scored=scored))
        return found, self.length_logits(encoded)

    def _found(self, hidden: Tensor, labels: Tensor, *, first: bool, scored: bool) -> Any:
        return self._decoder(first).guess(hidden, labels) if scored else self.logits(hidden, first=first)

    def encode(self, source: Tensor, source_mask: Tensor) -> Encoded:
        check_sentences("source", source, source_mask, self.vocabulary)
        return encode(self.encoder, source, source_mask)

    def length_logits(self, encoded: Encoded) -> Tensor:
        """(b, 2 · max_offset + 1): of the target's length less the source's, from -max_offset on.

        The predictor learns from what the encoder has, and does not change it.
        """
        features = torch.stack([encoded.embedded, *encoded.layers]).sum(0).detach()
        real = encoded.mask[..., None]
        logits: Tensor = self.offset(torch.where(real, features, 0).sum(1) / real.sum(1))
        return logits

    def length_labels(self, source_mask: Tensor, target_mask: Tensor) -> Tensor:
        """(b,): what `length_logits` should say."""
        offset = target_mask.sum(1) - source_mask.sum(1)
        return offset.clamp(-self.max_offset, self.max_offset) + self.max_offset

    def predict_lengths(self, encoded: Encoded) -> Tensor:
        """The most likely length of each translation, (b,)."""
        offset = self.length_logits(encoded).argmax(-1) - self.max_offset
        return (encoded.mask.sum(1) + offset).clamp(min=1)

    def first_input(self, encoded: Encoded, lengths: Tensor) -> Tensor:
        """What decoder 1 gets, (b, T, width): the source embeddings, evenly stretched to the target's lengths."""
        place = uniform_map(encoded.mask.sum(1), lengths)[..., None]
        return encoded.embedded.gather(1, place.expand(-1, -1, encoded.embedded.shape[-1]))

    def next_input(self, tokens: Tensor, hidden: Tensor) -> Tensor:
        """What decoder 2 gets: the tokens found so far, and how they were found."""
        return self.decoder2.embed(tokens) + hidden

    def sources(self, encoded: Encoded, *, first: bool) -> tuple[Source, ...]:
        """What `decode` sees of the source; the same for every iteration of a decoder."""
        return self._decoder(first).sources(encoded.layers, encoded.mask)

    def decode(
        self,
        encoded: Encoded,
        x: Tensor,
        target_mask: Tensor,
        *,
        first: bool,
        sources: tuple[Source, ...] | None = None,
    ) -> Tensor:
        """One pass of decoder 1 (`first`) or 2 over x (b, T, width): hidden states (b, T, width)."""
        decoder = self._decoder(first)
        if x.ndim != 3 or x.shape[0] != encoded.mask.shape[0] or x.shape[2] != decoder.width:
            expected = (encoded.mask.shape[0], "T", decoder.width)
            raise ValueError(f"x must have shape ({', '.join(map(str, expected))}), not {tuple(x.shape)}")
        check_sentence_mask("target_mask", target_mask, tuple(x.shape[:2]))
        sources = self.sources(encoded, first=first) if sources is None else sources
        places = decoder.places(x.shape[1])
        layers, _ = decoder(x + places, mask=padding_of(target_mask), places=places, sources=sources)
        hidden: Tensor = layers[-1]
        return hidden

    def logits(self, hidden: Tensor, *, first: bool) -> Tensor:
        """(..., width) → (..., V)."""
        return self._decoder(first).logits(hidden)

    def tokens(self, logits: Tensor, target_mask: Tensor) -> Tensor:
        """The most likely tokens (b, T), given the logits at the real positions; padding elsewhere."""
        return self._padded(most_likely(logits), target_mask)

    def words(self, hidden: Tensor, target_mask: Tensor, *, first: bool) -> Tensor:
        """`tokens`, given the hidden states (b, T, width): logits are made a few rows at a time, and never kept."""
        rows = max(64, LOGITS // self.vocabulary)
        guesses = [most_likely(self.logits(part, first=first)) for part in hidden[target_mask].split(rows)]
        return self._padded(torch.cat(guesses), target_mask)

    def _padded(self, tokens: Tensor, target_mask: Tensor) -> Tensor:
        padded = torch.full(target_mask.shape, self.padding, device=tokens.device)
        padded[target_mask] = tokens
        return padded

    def _decoder(self, first: bool) -> TranslationStack:
        return self.decoder1 if first else self.decoder2


def uniform_map(source_lengths: Tensor, target_lengths: Tensor) -> Tensor:
    """(b, T): target position t is that of the source at round(t(S - 1)/(T - 1)), by true lengths; halves go up."""
    t = torch.arange(int(target_lengths.max()), device=target_lengths.device)
    last, steps = source_lengths[:, None] - 1, (target_lengths[:, None] - 1).clamp(min=1)
    return ((2 * t * last + steps) // (2 * steps)).minimum(last)
