"""A block recorded as tasks of a token program, by running the block's own `forward` on stand-ins of its parts.

`Block.forward` is the one definition of a block. Here it is called with a `BlockRecorder` for self and with `Row`s for
activations: what it does to them, in whatever order, becomes tasks on buffers.
"""

import ctypes
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..layers.block import Block
from ..layers.mixers import LinearAttention, MomentumAttention, SoftmaxAttention
from ..layers.residual import AdaptiveMomentumResidual, MomentumResidual, PlainResidual
from ..ops.checks import checked_state
from ..ops.coefficients import MOMENTUM_ATTENTION, Coefficients, member
from ..ops.feature_maps import elu_plus_one
from ..ops.softmax import check_cache
from ..ops.state import CacheState, LinearState, MomentumState, map_state
from .program import TokenProgram


def can_record(block: Block) -> bool:
    """Whether a `BlockRecorder` knows every part of this block."""
    rule = block.residual
    adaptive = isinstance(rule, AdaptiveMomentumResidual) and rule.rule == "paper"
    if not (adaptive or isinstance(rule, PlainResidual | MomentumResidual)):
        return False
    return isinstance(block.attention.mixer, SoftmaxAttention) or _coefficients(block) is not None


def _coefficients(block: Block) -> Coefficients | None:
    mixer = block.attention.mixer
    if not isinstance(mixer, LinearAttention | MomentumAttention) or mixer.feature_map not in (None, elu_plus_one):
        return None
    if isinstance(mixer, LinearAttention):
        return Coefficients()
    if mixer.weighting != "relative":
        return None
    return member(torch.empty(0, 1, 0, 0), MOMENTUM_ATTENTION, {"beta": mixer.beta, "gamma": mixer.gamma})[0]


class Buffers(NamedTuple):
    """Activations, shared by all layers."""

    x: Tensor  # the residual stream: what a block reads and writes
    normed: Tensor  # x after a norm inside the block
    qkv: Tensor
    attended: Tensor  # what attention returns
    hidden: Tensor  # inside the feed-forward network
    change: Tensor  # what the feed-forward network returns
    velocity: Tensor
    updates: tuple[Tensor, Tensor]  # double buffer: the attention updates of this layer and of the one before

    @classmethod
    def of(cls, x: Tensor, hidden: int) -> "Buffers":
        batch, width = x.shape
        normed, attended, change, velocity, *updates = (torch.empty_like(x) for _ in range(6))
        qkv, inside = x.new_empty(batch, 3 * width), x.new_empty(batch, hidden)
        return cls(x, normed, qkv, attended, inside, change, velocity, (updates[0], updates[1]))


class Row:
    """An activation of each sample: a buffer, and what a post-norm block is about to add to it."""

    def __init__(self, recorder: "BlockRecorder", buffer: Tensor, pending: dict[str, Any] | None = None) -> None:
        self.recorder, self.buffer, self.pending = recorder, buffer, pending

    def __add__(self, change: "Row") -> "Row":
        return self.recorder.add(self, change.buffer, {})


class BlockRecorder:
    """Stands in for `block` in `Block.forward`: the same names, whose calls append tasks to the program."""

    def __init__(
        self,
        block: Block,
        program: TokenProgram,
        buffers: Buffers,
        *,
        layer: int,
        length: "ctypes.c_int64",
        capacity: int | None,
    ) -> None:
        self.block, self.program, self.buffers = block, program, buffers
        self.layer, self.length, self.capacity = layer, length, capacity
        self.norm = block.norm

    def record(self, state: Any) -> Any:
        """Append the tasks of the block; returns its own copy of the state, which they update."""
        forward: Any = Block.forward
        x, _, own = forward(self, Row(self, self.buffers.x), None, state=state, return_state=True)
        assert x.buffer is self.buffers.x
        assert x.pending is None
        return own

    def dropout(self, x: Row) -> Row:
        return x  # nobody decodes in training

    def attention_norm(self, x: Row) -> Row:
        return self._norm(x, self.block.attention_norm)

    def feedforward_norm(self, x: Row) -> Row:
        return self._norm(x, self.block.feedforward_norm)

    def _norm(self, x: Row, norm: nn.LayerNorm) -> Row:
        at = self.buffers
        out = at.normed if x.buffer is at.x else at.x
        self.program.residual_norm(x.buffer, **(x.pending or {"update": None}), out=out, norm=norm)
        return Row(self, out)

    def add(self, x: Row, update: Tensor, rule: dict[str, Any]) -> Row:
        """x + update by a residual rule: at once in a pre-norm block, together with the norm in a post-norm one."""
        if self.norm == "post":
            return Row(self, x.buffer, {"update": update, **rule})
        self.program.residual_norm(x.buffer, update, x.buffer, norm=None, **rule)
        return x

    def residual(self, x: Row, update: Row, memory: None) -> tuple[Row, None]:
        at, first, rule = self.buffers, self.layer == 0, {}
        match self.block.residual:
            case MomentumResidual(beta=beta, gamma=gamma):
                rule = {"beta": beta, "gamma": gamma, "velocity": at.velocity, "first_layer": first}
            case AdaptiveMomentumResidual(gamma=gamma, delta=delta):
                rule = {"beta": 1 - delta, "gamma": gamma, "velocity": at.velocity, "first_layer": first}
                rule["previous_update"] = None if first else at.updates[(self.layer + 1) % 2]
        return self.add(x, update.buffer, rule), None

    def feedforward(self, x: Row) -> Row:
        network, at = self.block.feedforward, self.buffers
        activation = "relu" if isinstance(network.activation, nn.ReLU) else "gelu"
        self.program.linear(x.buffer, network.enter.weight, network.enter.bias, at.hidden, activation=activation)
        self.program.linear(at.hidden, network.leave.weight, network.leave.bias, at.change)
        return Row(self, at.change)

    def attention(self, x: Row, *, key_mask: None, reset: None, state: Any, return_state: bool) -> tuple[Row, Any]:
        attention, at, program = self.block.attention, self.buffers, self.program
        projections = (attention.query, attention.key, attention.value)
        weight, bias = (torch.cat([getattr(p, name) for p in projections]) for name in ("weight", "bias"))
        program.linear(x.buffer, weight, bias, at.qkv)
        batch = len(at.x)
        q, k, v = at.qkv.view(batch, 3, attention.heads, -1).unbind(1)
        own = self._mix(q, k, v, at.attended.view(batch, attention.heads, -1), state)
        update = at.updates[self.layer % 2]
        program.linear(at.attended, attention.out.weight, attention.out.bias, update)
        return Row(self, update), own

    def _mix(self, q: Tensor, k: Tensor, v: Tensor, y: Tensor, state: Any) -> Any:
        """The mixer's task; returns its own copy of the state."""
        mixer, c = self.block.attention.mixer, _coefficients(self.block)
        if isinstance(mixer, SoftmaxAttention):
            check_cache(state, k[:, :, None], v[:, :, None])
            cache = self._cache(state, q.dtype)
            self.program.cached_attention(q, k, v, y, cache, self.length)
            return cache
        assert isinstance(mixer, LinearAttention | MomentumAttention)
        assert c is not None
        (b, h, d), e = q.shape, v.shape[-1]
        kind = LinearState if c.beta is None else MomentumState
        shapes: dict[str, tuple[int, ...] | None] = {"m": (b, h, d, e), "s": (b, h, d, e), "z": (b, h, d)}
        checked_state(state, kind, shapes, q)
        # a contiguous copy, as the kernels need, and because they update it in place
        own = map_state(lambda x: x.to(q.dtype, copy=True, memory_format=torch.contiguous_format), state)
        elu = mixer.feature_map is elu_plus_one
        self.program.attention_step(c, q, k, v, y, own, elu=elu, normalize=mixer.normalize)
        return own

    def _cache(self, state: CacheState, dtype: torch.dtype) -> CacheState:
        """A copy with capacity for more tokens; masked keys and values are zero."""
        if self.capacity is None or self.capacity < 0:
            raise ValueError(f"softmax needs max_new_tokens, the number of steps to come, not {self.capacity}")
        b, h, n = state.k.shape[:3]
        if self.length.value not in (-1, n):
            raise ValueError(f"the caches of state must be equally long, not {self.length.value} and {n} tokens")
        self.length.value = n
        k, v = (x.new_zeros(b, h, n + self.capacity, x.shape[-1], dtype=dtype) for x in (state.k, state.v))
        mask = state.mask.new_ones(b, n + self.capacity)
        mask[:, :n] = state.mask
        for own, given in ((k, state.k), (v, state.v)):
            own[:, :, :n] = torch.where(state.mask[:, None, :, None], given, 0)
        return CacheState(k, v, mask)
