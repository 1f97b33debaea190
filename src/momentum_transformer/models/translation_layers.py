"""What both translators are made of: blocks of self, positional and cross attention, in stacks with an embedding."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 (the field's name for it)
from torch import Tensor, nn

from ..backend.products import linear
from ..layers.block import Attention, Block, Sight, Source
from ..layers.dropout import Dropout
from ..layers.positions import sinusoids
from ..layers.presets import HighwayBlock
from ..layers.residual import Residual
from ..layers.situation import Mixer
from .token_loss import Guess, guess


class Encoded(NamedTuple):
    """A batch of source sentences, read."""

    layers: tuple[Tensor, ...]  # (b, S, width) each
    embedded: Tensor  # (b, S, width)  what the first layer got
    mask: Tensor  # (b, S)


class TranslationStack(nn.Module):
    """`depth` blocks with attentions for `sights`, and the embedding of tokens, also the output projection."""

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
        causal: bool = False,
        sights: Sequence[Sight] = ("own",),
    ) -> None:
        super().__init__()
        if depth < 1 or feedforward < 1:
            raise ValueError(f"depth and feedforward must be 1 or more, not {depth} and {feedforward}")
        if not hasattr(attention, "build"):
            raise ValueError(f"attention must be a mixer such as MomentumAttention(beta=0.1), not {attention!r}")
        if not Attention.uses_keys(attention):
            raise ValueError(f"attention must be a mixer with keys of its own, not {type(attention).__name__}")
        self.width = width
        bound = 1 / math.sqrt(width)
        self.embedding = nn.Parameter(torch.empty(vocabulary, width).uniform_(-bound, bound))
        self.dropout = Dropout(dropout)
        self.layers = nn.ModuleList(
            Block(
                width,
                heads,
                mixer=attention,
                residual=residual,
                causal=causal,
                preset=HighwayBlock(),
                feedforward=feedforward,
                dropout=dropout,
                sights=sights,
            )
            for _ in range(depth)
        )

    def embed(self, tokens: Tensor) -> Tensor:
        return F.embedding(tokens, self.embedding) * math.sqrt(self.width)

    def logits(self, hidden: Tensor) -> Tensor:
        return linear(hidden, self.embedding)

    def guess(self, hidden: Tensor, labels: Tensor) -> Guess:
        """The loss of these logits at labels, and the tokens that they make most likely."""
        return guess(hidden, self.embedding, labels)

    def places(self, length: int, first: int = 0) -> Tensor:
        """Where tokens stand, (1, length, width), counted from `first`."""
        positions = torch.arange(first, first + length, device=self.embedding.device)
        return sinusoids(positions, self.width).to(self.embedding.dtype)[None]

    def sources(self, encoded: Sequence[Tensor], mask: Tensor) -> tuple[Source, ...]:
        """What the cross attentions see, given what each layer is to look at."""
        hidden = padding_of(mask)
        found = []
        for layer, keys in zip(self.layers, encoded, strict=True):
            assert isinstance(layer, Block)
            cross = next(attention for sight, attention, _ in layer.attentions() if sight == "cross")
            found.append(Source(*cross.project(keys), hidden))
        return tuple(found)

    def forward(
        self,
        x: Tensor,
        *,
        mask: Tensor | None,
        places: Tensor,
        sources: Sequence[Source | None] | None = None,
        states: Sequence[Any] | None = None,
        return_states: bool = False,
    ) -> tuple[tuple[Tensor, ...], tuple[Any, ...]]:
        """x (b, n, width), which has its positions in it → the outputs and the states of the layers."""
        nothing = [None] * len(self.layers)
        sources, states = nothing if sources is None else sources, nothing if states is None else states
        x, memory = self.dropout(x), None
        outputs, after = [], []
        for layer, source, state in zip(self.layers, sources, states, strict=True):
            x, memory, state = layer(
                x, memory, key_mask=mask, places=places, source=source, state=state, return_state=return_states
            )
            outputs.append(x)
            after.append(state)
        return tuple(outputs), tuple(after)


def padding_of(mask: Tensor) -> Tensor | None:
    """None where nothing is masked, which is faster."""
    return None if bool(mask.all()) else mask


def encode(stack: TranslationStack, source: Tensor, mask: Tensor) -> Encoded:
    """The source sentences through a stack without cross attention."""
    places = stack.places(source.shape[1])
    embedded = stack.embed(source) + places
    layers, _ = stack(embedded, mask=padding_of(mask), places=places)
    return Encoded(layers, embedded, mask)


def check_sentences(name: str, tokens: Tensor, mask: Tensor, vocabulary: int) -> None:
    """Tokens (b, n) of a vocabulary, and a mask of them: each sentence stands at the front of its row."""
    if tokens.ndim != 2 or tokens.dtype != torch.int64 or not tokens.numel():
        raise ValueError(
            f"{name} must be int64 of shape (batch, length), not empty, not {tokens.dtype} of shape "
            f"{tuple(tokens.shape)}"
        )
    check_sentence_mask(f"{name}_mask", mask, tuple(tokens.shape))
    least, most = (int(extreme) for extreme in torch.aminmax(tokens))
    if least < 0 or most >= vocabulary:
        outside = least if least < 0 else most
        raise ValueError(f"{name} must have tokens from 0 to {vocabulary - 1}, not {outside}")


def check_targets(target: Tensor, target_mask: Tensor, source: Tensor, vocabulary: int) -> None:
    """Sentences, as many as there are sources."""
    check_sentences("target", target, target_mask, vocabulary)
    if target.shape[0] != source.shape[0]:
        raise ValueError(f"target must have {source.shape[0]} sentences like source, not {target.shape[0]}")


def check_sentence_mask(name: str, mask: Tensor, shape: tuple[int, ...]) -> None:
    if mask.dtype != torch.bool or tuple(mask.shape) != shape:
        raise ValueError(f"{name} must be bool of shape {shape}, not {mask.dtype} of shape {tuple(mask.shape)}")
    if not bool(mask[:, 0].all()) or bool((mask[:, 1:] & ~mask[:, :-1]).any()):
        raise ValueError(f"{name} must be True at the tokens of each sentence, one or more, and False after them only")
