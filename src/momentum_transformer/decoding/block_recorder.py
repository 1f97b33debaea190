"""A block recorded as tasks of a token program, by running the block's own `forward` on stand-ins of its parts.

`Block.forward` is the one definition of a block. Here it is called with a `BlockRecorder` for self and with `Row`s for
activations: what it does to them, in whatever order, becomes tasks on buffers.
"""

import ctypes
from typing import Any

from torch import Tensor, nn

from ..layers.block import Block, FeedForward, GatedFeedForward, Sight
from ..layers.residual import AdaptiveMomentumResidual, MomentumResidual, PlainResidual
from . import attention_recorder
from .attention_recorder import AttentionRecorder, Kept
from .buffers import Buffers
from .program import TokenProgram


def refusal(block: Block) -> str | None:
    """Why a `BlockRecorder` does not know this block; None where it does."""
    if block.sights:
        return f"a block whose attentions see {', '.join(block.sights)} has no native form"
    rule = block.residual
    if isinstance(rule, AdaptiveMomentumResidual) and rule.rule != "paper":
        return f"adaptive momentum by the rule {rule.rule!r} has no native form"
    if not isinstance(rule, PlainResidual | MomentumResidual | AdaptiveMomentumResidual):
        return f"{type(rule).__name__} has no native form"
    if not isinstance(block.feedforward, FeedForward | GatedFeedForward):
        return f"{type(block.feedforward).__name__} has no native form"
    for norm in (block.attention_norm, block.feedforward_norm):
        if norm_refusal(norm) is not None:
            return norm_refusal(norm)
    return attention_recorder.refusal(block.attention.mixer)


def norm_refusal(norm: nn.Module) -> str | None:
    """Why a norm has no native form; None where it has one."""
    if isinstance(norm, nn.LayerNorm) and norm.weight is not None and norm.bias is not None:
        return None
    if isinstance(norm, nn.RMSNorm) and norm.weight is not None and norm.eps is not None:
        return None
    return f"{norm} has no native form"


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
        steps: "ctypes.c_int64",
        capacity: int | None,
    ) -> None:
        self.block, self.program, self.buffers = block, program, buffers
        self.layer, self.steps, self.capacity = layer, steps, capacity
        self.norm, self.highway = block.norm, block.highway

    def record(self, state: Any) -> Kept:
        """Append the tasks of the block; returns what gives the state, of which they update a copy."""
        forward: Any = Block.forward
        x, _, kept = forward(self, Row(self, self.buffers.x), None, state=state, return_state=True)
        assert x.buffer is self.buffers.x
        assert x.pending is None
        kept_state: Kept = kept
        return kept_state

    def attentions(self) -> list[tuple[Sight, Any, Any]]:
        return [("own", self.attention, self.attention_norm)]

    def dropout(self, x: Row) -> Row:
        return x  # nobody decodes in training

    def attention_norm(self, x: Row) -> Row:
        return self._norm(x, self.block.attention_norm)

    def feedforward_norm(self, x: Row) -> Row:
        return self._norm(x, self.block.feedforward_norm)

    def _norm(self, x: Row, norm: Any) -> Row:
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
        network: Any = self.block.feedforward
        at = self.buffers
        if isinstance(network, GatedFeedForward):
            gate, value = network.enter.weight.chunk(2)
            self.program.linear(x.buffer, value, None, at.factor)
            self.program.linear(x.buffer, gate, None, at.hidden, activation="silu", factor=at.factor)
            self.program.linear(at.hidden, network.leave.weight, None, at.change)
            return Row(self, at.change)
        activation = "relu" if isinstance(network.activation, nn.ReLU) else "gelu"
        self.program.linear(x.buffer, network.enter.weight, network.enter.bias, at.hidden, activation=activation)
        self.program.linear(at.hidden, network.leave.weight, network.leave.bias, at.change)
        return Row(self, at.change)

    def attention(self, x: Row, *, key_mask: None, reset: None, state: Any, return_state: bool) -> tuple[Row, Kept]:
        update = self.buffers.updates[self.layer % 2]
        layer = AttentionRecorder(
            self.block.attention, self.program, self.buffers, steps=self.steps, capacity=self.capacity
        )
        return Row(self, update), layer.record(x.buffer, update, state)
