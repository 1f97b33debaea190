"""The one encoder: a stack of blocks, for training, prefill and decoding."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..context import in_this_context
from ..layers.block import Activation, Block, Norm, Preset
from ..layers.paper_mixers import MomentumAttention
from ..layers.presets import PaperBlock
from ..layers.residual import PlainResidual, Residual
from ..layers.situation import Mixer
from .summary import summary


class EncoderState(NamedTuple):
    """What a causal encoder remembers: one state a layer."""

    layers: tuple[Any, ...]


class Encoder(nn.Module):
    """A stack of blocks, and a final normalisation.

    With `encoder.gradient_checkpointing = True`, training keeps only what enters a block, and runs it again backwards.

    Args:
        depth: blocks.
        width: features of a token.
        heads: attention heads, which share the width.
        attention: how tokens mix, one mixer for all layers or a list with one per layer.
        residual: how layers connect.
        causal: whether a token sees only what came before it.
        norm: "post" (the paper's copy and image models) or "pre" (Long Range Arena).
        activation: of the feed-forward networks, "relu" or "gelu".
        block: what blocks are made of, instead of `norm` and `activation`, such as ModernBlock().
        feedforward: hidden features of the feed-forward networks; by default 4 × width.
        dropout: of updates and of hidden features, while training.
        final_norm: whether to normalise after the last block.

    Examples:
        >>> encoder, x = Encoder(2, 16, 2), torch.randn(3, 50, 16)
        >>> y = encoder(x)  # training: linear time
        >>> y, state = encoder(x, return_state=True)  # prefill
        >>> y_t, state = encoder.step(x[:, -1], state)  # decoding: constant time and memory per token
    """

    __repr__ = summary

    def __init__(
        self,
        depth: int,
        width: int,
        heads: int,
        *,
        attention: Mixer | Sequence[Mixer] | None = None,
        residual: Residual | None = None,
        causal: bool = True,
        norm: Norm = "post",
        feedforward: int | None = None,
        activation: Activation = "relu",
        dropout: float = 0.0,
        final_norm: bool = True,
        block: Preset | None = None,
    ) -> None:
        super().__init__()
        if depth < 1:
            raise ValueError(f"depth must be 1 or more, not {depth}")
        attention = MomentumAttention() if attention is None else attention
        if isinstance(attention, str):
            raise ValueError(f"attention must be a mixer such as MomentumAttention(beta=0.1), not {attention!r}")
        if block is None:
            block = PaperBlock(norm, activation)
        elif (norm, activation) != ("post", "relu"):
            raise ValueError(f"{type(block).__name__} has a norm and an activation of its own; leave out the others")
        mixers = list(attention) if isinstance(attention, Sequence) else [attention] * depth
        if len(mixers) != depth:
            raise ValueError(f"attention must name one mixer for each of {depth} layers, not {len(mixers)}")
        self.width = width
        self.causal = causal
        self.blocks = nn.ModuleList(
            Block(
                width,
                heads,
                mixer=mixer,
                residual=PlainResidual() if residual is None else residual,
                causal=causal,
                preset=block,
                feedforward=4 * width if feedforward is None else feedforward,
                dropout=dropout,
            )
            for mixer in mixers
        )
        self.final_norm = block.build_norm(width) if final_norm else nn.Identity()
        # both under the names by which Transformers switches them
        self.gradient_checkpointing = False
        self._gradient_checkpointing_func = partial(checkpoint, use_reentrant=False)

    def forward(
        self,
        x: Tensor,
        *,
        key_mask: Tensor | None = None,
        reset: Tensor | None = None,
        state: EncoderState | None = None,
        return_state: bool = False,
    ) -> Any:
        """All tokens at once.

        Args:
            x: tokens (b, n, width).
            key_mask: (b, n) False where a token does not exist.
            reset: (b, n) True where a new document begins.
            state: what earlier tokens left behind.
            return_state: also return the state after the last token.

        Returns:
            y (b, n, width), or with `return_state` the pair (y, EncoderState).
        """
        if x.ndim != 3 or x.shape[-1] != self.width:
            raise ValueError(f"x must have shape (batch, length, {self.width}), not {tuple(x.shape)}")
        if not self.causal and (state is not None or return_state):
            raise ValueError("state and return_state need Encoder(causal=True): otherwise there is no recurrence")
        weight = next(self.parameters())
        if x.device != weight.device:
            raise ValueError(f"x must be on {weight.device}, where this encoder is, not {x.device}")
        if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
            raise ValueError(f"x must be {weight.dtype} like this encoder, not {x.dtype}; cast x, or use autocast")
        if state is not None and not isinstance(state, EncoderState):
            raise ValueError(f"state must be an EncoderState, not {type(state).__name__}")
        if state is not None and len(state.layers) != len(self.blocks):
            raise ValueError(f"state must have {len(self.blocks)} layers like this encoder, not {len(state.layers)}")
        before = [None] * len(self.blocks) if state is None else state.layers
        after = []
        memory = None
        for block, layer_state in zip(self.blocks, before, strict=True):
            told = {"key_mask": key_mask, "reset": reset, "state": layer_state, "return_state": return_state}
            if self.gradient_checkpointing and self.training:
                again = in_this_context(partial(block, **told))
                x, memory, layer_state = self._gradient_checkpointing_func(again, x, memory)
            else:
                x, memory, layer_state = block(x, memory, **told)
            after.append(layer_state)
        y: Tensor = self.final_norm(x)
        return (y, EncoderState(tuple(after))) if return_state else y

    def step(self, x_t: Tensor, state: EncoderState | None = None) -> tuple[Tensor, EncoderState]:
        """One more token.

        Args:
            x_t: the token (b, width) or (b, 1, width).
            state: what earlier tokens left behind; None before the first one.

        Returns:
            The pair of y in the shape of x_t, and of the state after it.
        """
        if x_t.ndim == 2:
            y, state = self.forward(x_t[:, None, :], state=state, return_state=True)
            return y[:, 0, :], state
        if x_t.ndim != 3 or x_t.shape[1] != 1:
            raise ValueError(
                f"x_t must have shape (batch, {self.width}) or (batch, 1, {self.width}), not {tuple(x_t.shape)}"
            )
        return self.forward(x_t, state=state, return_state=True)

    def initial_state(self, batch_size: int) -> EncoderState:
        """The state before the first token, also the mould for `ops.load_state`.

        Args:
            batch_size: rows of the batch.

        Returns:
            A state on the device and in the dtype of this encoder.
        """
        parameter = next(self.parameters())
        return self.forward(parameter.new_zeros(batch_size, 0, self.width), return_state=True)[1]
