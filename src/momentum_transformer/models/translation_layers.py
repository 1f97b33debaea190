"""What both translators are made of: layers of self, positional and cross attention, in stacks with an embedding."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 (the field's name for it)
from torch import Tensor, nn

from ..layers.block import Attention, HighwayFeedForward
from ..layers.dropout import Dropout
from ..layers.positions import sinusoids
from ..layers.residual import Residual
from ..layers.situation import Mixer


class Encoded(NamedTuple):
    """A batch of source sentences, read."""

    layers: tuple[Tensor, ...]  # (b, S, width) each
    embedded: Tensor  # (b, S, width)  what the first layer got
    mask: Tensor  # (b, S)


class Source(NamedTuple):
    """What a layer's cross attention sees: keys and values in heads, projected once for all that is decoded."""

    k: Tensor  # (b, h, S, d)
    v: Tensor  # (b, h, S, d)
    mask: Tensor | None  # (b, S)


class AttentionStep(nn.Module):
    """Attention, and the way of its output into x: dropout, a residual rule, normalisation."""

    def __init__(
        self, width: int, heads: int, *, mixer: Mixer, residual: Residual, causal: bool, dropout: float
    ) -> None:
        super().__init__()
        self.attention = Attention(width, heads, mixer, causal=causal)
        self.norm = nn.LayerNorm(width)
        self.dropout = Dropout(dropout)
        self.residual = residual

    def connect(self, x: Tensor, update: Tensor, memory: Any) -> tuple[Tensor, Any]:
        x, memory = self.residual(x, self.dropout(update), memory)
        return self.norm(x), memory


class TranslationLayer(nn.Module):
    """Self attention, positional attention, cross attention, a highway feed-forward network; post-norm.

    Positional attention has positions for queries and keys, and x for values. What the residual rule remembers runs
    through the three attentions; the feed-forward network is beside it.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        mixer: Mixer,
        residual: Residual,
        feedforward: int,
        dropout: float,
        causal: bool,
        positional: bool,
        cross: bool,
    ) -> None:
        super().__init__()

        def step(causal: bool) -> AttentionStep:
            return AttentionStep(width, heads, mixer=mixer, residual=residual, causal=causal, dropout=dropout)

        self.own = step(causal)
        self.positional = step(False) if positional else None
        self.cross = step(False) if cross else None
        self.feedforward = HighwayFeedForward(width, feedforward, dropout=dropout)
        self.feedforward_norm = nn.LayerNorm(width)

    def forward(
        self,
        x: Tensor,
        memory: Any,
        *,
        mask: Tensor | None,
        places: Tensor,
        source: Source | None,
        state: Any = None,
        return_state: bool = False,
    ) -> tuple[Tensor, Any, Any]:
        """x after the layer, what the residual rule remembers for the next layer, and the state of self attention."""
        update, state = self.own.attention(x, key_mask=mask, state=state, return_state=return_state)
        x, memory = self.own.connect(x, update, memory)
        if self.positional is not None:
            update, _ = self.positional.attention(places, values=x, key_mask=mask)
            x, memory = self.positional.connect(x, update, memory)
        if self.cross is not None:
            assert source is not None
            update, _ = self.cross.attention.mix(x, source.k, source.v, cross=True, key_mask=source.mask)
            x, memory = self.cross.connect(x, update, memory)
        return self.feedforward_norm(self.feedforward(x)), memory, state


class TranslationStack(nn.Module):
    """`depth` layers, and the embedding of their tokens, which is also their output projection."""

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
        positional: bool = False,
        cross: bool = False,
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
            TranslationLayer(
                width,
                heads,
                mixer=attention,
                residual=residual,
                feedforward=feedforward,
                dropout=dropout,
                causal=causal,
                positional=positional,
                cross=cross,
            )
            for _ in range(depth)
        )

    def embed(self, tokens: Tensor) -> Tensor:
        return F.embedding(tokens, self.embedding) * math.sqrt(self.width)

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.embedding)

    def places(self, length: int, first: int = 0) -> Tensor:
        """Where tokens stand, (1, length, width), counted from `first`."""
        positions = torch.arange(first, first + length, device=self.embedding.device)
        return sinusoids(positions, self.width).to(self.embedding.dtype)[None]

    def sources(self, encoded: Sequence[Tensor], mask: Tensor) -> tuple[Source, ...]:
        """What the cross attentions see, given what each layer is to look at."""
        hidden = padding_of(mask)
        found = []
        for layer, keys in zip(self.layers, encoded, strict=True):
            assert isinstance(layer, TranslationLayer)
            assert layer.cross is not None
            found.append(Source(*layer.cross.attention.project(keys), hidden))
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
                x, memory, mask=mask, places=places, source=source, state=state, return_state=return_states
            )
            outputs.append(x)
            after.append(state)
        return tuple(outputs), tuple(after)


def padding_of(mask: Tensor) -> Tensor | None:
    """The mask, or None where it hides nothing: what is not masked need not be looked at twice."""
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


def check_sentence_mask(name: str, mask: Tensor, shape: tuple[int, ...]) -> None:
    if mask.dtype != torch.bool or tuple(mask.shape) != shape:
        raise ValueError(f"{name} must be bool of shape {shape}, not {mask.dtype} of shape {tuple(mask.shape)}")
    if not bool(mask[:, 0].all()) or bool((mask[:, 1:] & ~mask[:, :-1]).any()):
        raise ValueError(f"{name} must be True at the tokens of each sentence, one or more, and False after them only")
