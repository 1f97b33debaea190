"""One attention layer and one block, for every mixer, every residual rule and every model."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol, cast

import torch
import torch.nn.functional as F  # noqa: N812 (the field's name for it)
from torch import Tensor, nn

from ..ops.checks import check_choice
from .description import described
from .dropout import Dropout
from .linear_layer import Linear
from .residual import Residual
from .situation import Mixer, Situation, across

Norm = Literal["post", "pre"]
Activation = Literal["relu", "gelu"]
Sight = Literal["own", "positional", "cross"]  # what an attention of a block sees


class Attention(nn.Module):
    """Projections in and out (eq. 2) around a mixer."""

    def __init__(self, width: int, heads: int, mixer: Mixer, *, causal: bool) -> None:
        super().__init__()
        if width < 1 or heads < 1 or width % heads:
            raise ValueError(f"width must be a multiple of heads, not width={width} and heads={heads}")
        self.heads = heads
        self.causal = causal
        self.query = Linear(width, width)
        self.key = Linear(width, width)
        self.value = Linear(width, width)
        self.out = Linear(width, width)
        self.choice = mixer
        self.mixer = mixer.build(width, heads)
        self.separate_keys = self.uses_keys(mixer)
        if not self.separate_keys:  # nothing waits for gradients that never come
            self.key.requires_grad_(False)

    def extra_repr(self) -> str:
        return f"heads={self.heads}, mixer={described(self.choice)}"

    @staticmethod
    def uses_keys(mixer: Mixer) -> bool:
        """Whether keys are projected for themselves; a mixer without says so."""
        return getattr(mixer, "uses_keys", True)

    def forward(
        self,
        x: Tensor,
        *,
        keys: Tensor | None = None,
        values: Tensor | None = None,
        key_mask: Tensor | None = None,
        reset: Tensor | None = None,
        state: Any = None,
        return_state: bool = False,
        causal: bool | None = None,
    ) -> tuple[Tensor, Any]:
        """Tokens x (b, n, width) see `keys` (b, m, width), by default themselves, and take in `values`, by default the
        keys. x and keys with a batch of 1 serve every sample of the values. `causal` is by default that of the layer.
        """
        k, v = self.project(x if keys is None else keys, values)
        return self.mix(
            x,
            k,
            v,
            cross=keys is not None,
            key_mask=key_mask,
            reset=reset,
            state=state,
            return_state=return_state,
            causal=causal,
        )

    def project(self, keys: Tensor, values: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """k and v for `mix`: projected once where many calls see the same keys."""
        return self._heads(self.key(keys)), self._heads(self.value(keys if values is None else values))

    def mix(
        self,
        x: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        cross: bool,
        key_mask: Tensor | None = None,
        reset: Tensor | None = None,
        state: Any = None,
        return_state: bool = False,
        causal: bool | None = None,
    ) -> tuple[Tensor, Any]:
        """`forward` with keys and values in heads already; `cross` where they are of other tokens than x."""
        if cross and not self.separate_keys:
            raise ValueError("this mixer has no keys apart from its queries, so it cannot see other tokens")
        q = self._heads(self.query(x))
        q, k = (one.expand(v.shape[0], -1, -1, -1) if one.shape[0] == 1 else one for one in (q, k))
        query_mask = None
        if cross and key_mask is not None and q.shape[2] == k.shape[2]:  # by chance: the mask is not that of x
            query_mask = torch.ones_like(key_mask)
        tokens = None if cross or x.shape[0] != v.shape[0] else x
        order = self.causal if causal is None else causal
        at = Situation(order, key_mask, state, return_state, self.training, query_mask, tokens, reset)
        y, state = self.mixer(q, k, v, at)
        return self.out(y.transpose(1, 2).flatten(2)), state

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class FeedForward(nn.Module):
    """Two linear maps with an activation between, on each token by itself."""

    def __init__(self, width: int, hidden: int, *, activation: Activation, dropout: float) -> None:
        super().__init__()
        check_choice("activation", activation, ("relu", "gelu"))
        self.enter = Linear(width, hidden)
        self.leave = Linear(hidden, width)
        self.activation = nn.ReLU() if activation == "relu" else nn.GELU()
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.dropout(self.activation(self.enter(x)))
        leave: Tensor = self.leave(hidden)
        return leave


class GatedFeedForward(nn.Module):
    """silu(gate) · value of two linear maps, and a third one back (SwiGLU), on each token by itself."""

    def __init__(self, width: int, hidden: int, *, dropout: float) -> None:
        super().__init__()
        self.enter = Linear(width, 2 * hidden, bias=False)
        self.leave = Linear(hidden, width, bias=False)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.enter(x).chunk(2, -1)
        hidden: Tensor = self.dropout(F.silu(gate) * value)
        leave: Tensor = self.leave(hidden)
        return leave


class HighwayFeedForward(nn.Module):
    """x·g + FFN(x)·(1 - g) with a gate g = sigmoid(FFN'(x)): a feed-forward network on each token by itself."""

    def __init__(self, width: int, hidden: int, *, dropout: float) -> None:
        super().__init__()
        self.change = FeedForward(width, hidden, activation="relu", dropout=0.0)
        self.gate = FeedForward(width, hidden, activation="relu", dropout=0.0)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        change, gate = (self.dropout(self.change(x)).to(x.dtype), self.gate(x).sigmoid().to(x.dtype))  # autocast
        return torch.lerp(change, x, gate)


class Preset(Protocol):
    """What a block is made of beside its mixer and its residual rule."""

    @property
    def norm(self) -> Norm: ...

    def build_norm(self, width: int) -> nn.Module: ...

    def build_feedforward(self, width: int, hidden: int, dropout: float) -> nn.Module: ...


class Source(NamedTuple):
    """Another sequence, as a cross attention sees it: keys and values in heads, projected once for many calls."""

    k: Tensor  # (b, h, m, d)
    v: Tensor  # (b, h, m, d)
    mask: Tensor | None  # (b, m)


class AttentionStep(nn.Module):
    """An attention layer and its norm: one of several in a block."""

    def __init__(self, attention: Attention, norm: nn.Module) -> None:
        super().__init__()
        self.attention = attention
        self.norm = norm


class Block(nn.Module):
    """Attention by a residual rule, once or several times, then a feed-forward network; post-norm or pre-norm.

    By default a block has one attention, in which tokens see each other. With `sights` it has one step for each of
    them, under its name and in this order: "own" is this same attention, "positional" has positions for queries and
    keys, and x for values, "cross" sees another sequence. What the residual rule remembers runs through all of them;
    the feed-forward network is beside it.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        mixer: Mixer,
        residual: Residual,
        causal: bool,
        preset: Preset,
        feedforward: int,
        dropout: float,
        sights: Sequence[Sight] = (),
    ) -> None:
        super().__init__()
        self.norm = preset.norm
        self.residual = residual
        self.sights = tuple(sights)
        for sight in self.sights:
            own = sight == "own"
            attention = Attention(width, heads, mixer if own else across(mixer), causal=causal and own)
            self.add_module(sight, AttentionStep(attention, preset.build_norm(width)))
        if not self.sights:
            self.attention = Attention(width, heads, mixer, causal=causal)
        self.feedforward = preset.build_feedforward(width, feedforward, dropout)
        # optimizers number what they remember in the order of parameters: it stays, as names do
        if not self.sights:
            self.attention_norm = preset.build_norm(width)
        self.feedforward_norm = preset.build_norm(width)
        self.highway = isinstance(self.feedforward, HighwayFeedForward)
        self.dropout = Dropout(dropout)

    def attentions(self) -> list[tuple[Sight, Attention, nn.Module]]:
        """The attentions in their order, each with what it sees and with its norm."""
        if not self.sights:
            return [("own", self.attention, self.attention_norm)]
        found = ((sight, cast(AttentionStep, self.get_submodule(sight))) for sight in self.sights)
        return [(sight, step.attention, step.norm) for sight, step in found]

    def forward(
        self,
        x: Tensor,
        memory: Any,
        *,
        key_mask: Tensor | None = None,
        reset: Tensor | None = None,
        places: Tensor | None = None,
        source: Source | None = None,
        state: Any = None,
        return_state: bool = False,
    ) -> tuple[Tensor, Any, Any]:
        """x after the block, what the residual rule remembers for the next block, and the state of the mixer of "own".

        `places` (1, n, width) are what positional attention asks with, `source` is what cross attention sees.
        """
        pre = self.norm == "pre"
        for sight, attention, norm in self.attentions():
            seen = norm(x) if pre else x
            if sight == "own":
                update, state = attention(seen, key_mask=key_mask, reset=reset, state=state, return_state=return_state)
            elif sight == "positional":
                update, _ = attention(places, values=seen, key_mask=key_mask)
            else:
                assert source is not None
                update, _ = attention.mix(seen, source.k, source.v, cross=True, key_mask=source.mask)
            x, memory = self.residual(x, self.dropout(update), memory)
            if not pre:
                x = norm(x)
        change = self.feedforward(self.feedforward_norm(x) if pre else x)
        x = change if self.highway else x + self.dropout(change)  # a highway network has x in its output
        if not pre:
            x = self.feedforward_norm(x)
        return x, memory, state
