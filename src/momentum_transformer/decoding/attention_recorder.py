"""An attention layer recorded as tasks of a token program: projections, then what the mixer does with them.

All projections of x are one matrix product: queries, keys and values, the logits of gates, the first half of an output
gate. In which order parts follow each other is read from `WithParts.forward`, and how coefficients are combined from
`Recurrence.combined`: both are called with stand-ins.
"""

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from ..backend.cpu.step_operator import FEATURES
from ..layers.block import Attention
from ..layers.family_mixers import Recurrence
from ..layers.gates import Decay, Gate, Share, StepSize, Strength
from ..layers.paper_mixers import (
    LearnedMomentum,
    LinearAttention,
    MomentumAttention,
    SoftmaxAttention,
    WindowAttention,
)
from ..layers.parts import WithParts
from ..layers.short_convolution import Pasts
from ..layers.situation import Situation
from ..ops.checks import checked_state
from ..ops.coefficients import FAMILY, MOMENTUM_ATTENTION, Coefficients, member
from ..ops.softmax import check_cache
from ..ops.state import LinearState, MomentumState, RecurrentState, map_state
from .buffers import Buffers
from .kv_cache import KeptCache
from .program import GateTask, TokenProgram

Kept = Callable[[], Any]  # gives the state of a layer as it is now
KINDS = {Strength: "strength", Share: "strength", StepSize: "step size", Decay: "decay"}  # as GATES in program.py


def refusal(mixer: Any) -> str | None:
    """Why this mixer cannot be recorded; None where it can."""
    mix = mixer.mix if isinstance(mixer, WithParts) else mixer
    if isinstance(mix, SoftmaxAttention | WindowAttention):
        return None
    mix = mix.start if isinstance(mix, LearnedMomentum) else mix
    if not isinstance(mix, LinearAttention | MomentumAttention | Recurrence):
        return f"{type(mix).__name__} has no native step"
    if isinstance(mix, MomentumAttention) and mix.weighting != "relative":
        return f'weighting="{mix.weighting}" has no recurrent form'
    if isinstance(mix, Recurrence) and not all(type(gate) in KINDS for gate in _gates(mix)):
        return "a gate is none of " + ", ".join(kind.__name__ for kind in KINDS)
    if mix.feature_map not in FEATURES:
        return f"the feature map {getattr(mix.feature_map, '__name__', mix.feature_map)} has no native form"
    return None


def _gates(mixer: Any) -> list[Gate]:
    return [x for x in mixer.modules() if isinstance(x, Gate)] if isinstance(mixer, nn.Module) else []


class GateValue:
    """A coefficient that x decides, as `Recurrence.combined` sees it."""

    def __init__(self, gate: Gate, complement: "GateValue | None" = None) -> None:
        self.gate, self.complement = gate, complement

    def __rsub__(self, one: float) -> "Complement":
        assert one == 1
        return Complement(self)


class Complement:
    """1 - a gate."""

    def __init__(self, of: GateValue) -> None:
        self.of = of

    def __mul__(self, value: GateValue) -> GateValue:
        assert value.complement is None
        return GateValue(value.gate, self.of)


class AttentionRecorder:
    """The tasks of one attention layer.

    Args:
        steps: how many steps the decoder has taken.
        capacity: how many it may take, for a KV cache.
    """

    def __init__(
        self,
        attention: Attention,
        program: TokenProgram,
        buffers: Buffers,
        *,
        steps: "ctypes.c_int64",
        capacity: int | None,
    ) -> None:
        self.attention, self.program, self.buffers = attention, program, buffers
        self.steps, self.capacity = steps, capacity
        self.mixer: Any = attention.mixer
        tail = getattr(self.mixer, "tail", None)
        self.gate: Any = None if tail is None else tail.gate
        self.low_rank = isinstance(self.gate, nn.Sequential)
        first: Any = self.gate[0] if isinstance(self.gate, nn.Sequential) else self.gate
        # the few columns of gates last: wider ones begin on a cache line
        projections: list[Any] = [attention.query, attention.key, attention.value, first]
        projections += [gate.project for gate in _gates(attention.mixer)]
        self.projections: list[nn.Linear] = [p for p in projections if p is not None]
        self.projected = buffers.projected(sum(p.out_features for p in self.projections))

    def record(self, x: Tensor, update: Tensor, state: Any) -> Kept:
        """Add the tasks that make `update` of x; returns what gives the state."""
        weight = torch.cat([p.weight for p in self.projections])
        biases: list[Tensor] = [
            p.weight.new_zeros(len(p.weight)) if p.bias is None else p.bias for p in self.projections
        ]
        self.program.linear(x, weight, torch.cat(biases), self.projected)
        q, k, v = (self._heads(self._columns(p)) for p in self.projections[:3])
        at = Situation(causal=True, state=state, return_state=True, x=x)
        mixer = self.mixer
        if isinstance(mixer, WithParts):
            parts: Any = SimpleNamespace(mix=self._mix)
            parts.convolution = None if mixer.convolution is None else self._convolve
            parts.tail = None if mixer.tail is None else self._norm_and_gate
            _, kept = WithParts.forward(parts, q, k, v, at)
        else:
            _, kept = self._mix(q, k, v, at)
        self.program.run_heads()
        self.program.linear(self.buffers.attended, self.attention.out.weight, self.attention.out.bias, update)
        if isinstance(kept, tuple):  # a PartsState of such functions
            return lambda: type(kept)(*(part() for part in kept))
        return kept

    def _heads(self, x: Tensor) -> Tensor:
        """(b, h · d) → (b, h, 1, d)"""
        return x.unflatten(1, (self.attention.heads, -1))[:, :, None]

    def _columns(self, projection: nn.Module) -> Tensor:
        """What a projection has made of x."""
        number = next(i for i, p in enumerate(self.projections) if p is projection)
        first = sum(p.out_features for p in self.projections[:number])
        return self.projected[:, first : first + self.projections[number].out_features]

    def _convolve(
        self, q: Tensor, k: Tensor, v: Tensor, at: Situation, pasts: Pasts
    ) -> tuple[Tensor, Tensor, Tensor, Kept]:
        b, h, _, d = q.shape
        convolution = self.mixer.convolution
        taps = convolution.options.taps
        for past in pasts:
            if past.shape != (b, taps - 1, h * d):
                raise ValueError(
                    f"state.convolution must have tensors of shape {(b, taps - 1, h * d)}, not {tuple(past.shape)}"
                )
        weights = torch.stack([convolution.query, convolution.key, convolution.value])
        own = torch.stack([past.unflatten(2, (h, d)) for past in pasts], 1).to(q.dtype)  # (b, 3, taps - 1, h, d)
        own = own.permute(0, 3, 1, 2, 4).contiguous()
        x = self.projected[:, : 3 * h * d].unflatten(1, (3, h, d))
        by_head = weights.unflatten(1, (h, d)).permute(1, 0, 3, 2)  # (h, 3, taps, d)
        self.program.convolution(x, by_head, own, silu=convolution.options.activation == "silu")
        return q, k, v, lambda: tuple(own[:, :, i].transpose(1, 2).flatten(2) for i in range(3))

    def _norm_and_gate(self, y: Tensor, at: Situation) -> Tensor:
        logits = None
        if self.low_rank:  # the second half is a matrix product of its own
            first, second = self.gate
            logits = self.buffers.opened
            self.program.linear(self._columns(first), second.weight, second.bias, logits)
        elif self.gate is not None:
            logits = self._columns(self.gate)
        self.program.norm_and_gate(y, self.mixer.tail.norm, logits)
        return y

    def _mix(self, q: Tensor, k: Tensor, v: Tensor, at: Situation) -> tuple[Tensor, Kept]:
        """The mixer's own task."""
        y = self._heads(self.buffers.attended)
        mix: Any = self.mixer.mix if isinstance(self.mixer, WithParts) else self.mixer
        if isinstance(mix, SoftmaxAttention | WindowAttention):
            check_cache(at.state, k, v)
            cache = KeptCache(at.state, q.dtype, window=getattr(mix, "window", None), capacity=self.capacity)
            self.program.cached_attention(q, k, v, y, cache.ring, given=cache.given, steps=self.steps)
            return y, lambda: cache.state(self.steps.value)
        c, kind = self._member(mix, q)
        scale = mix.scale(q.shape[-1]) if isinstance(mix, Recurrence) else 1.0
        mix = mix.start if isinstance(mix, LearnedMomentum) else mix
        (b, h, _, d), e = q.shape, v.shape[-1]
        matrix, keeps_z = (b, h, d, e), mix.normalize or kind is not RecurrentState
        shapes: dict[str, tuple[int, ...] | None]
        shapes = {"s": matrix, "m": None if c.beta is None else matrix, "z": (b, h, d) if keeps_z else None}
        checked_state(at.state, kind, shapes, q)
        # a contiguous copy, as the kernels need, and because they update it in place
        own = map_state(lambda x: x.to(q.dtype, copy=True, memory_format=torch.contiguous_format), at.state)
        parts = (getattr(own, "m", None), own.s, own.z)
        features = FEATURES.index(mix.feature_map)
        self.program.attention_step(c, q, k, v, y, parts, features=features, normalize=mix.normalize, scale=scale)
        return y, lambda: own

    def _member(self, mix: Any, q: Tensor) -> tuple[Coefficients, type[Any]]:
        """The coefficients of a mixer, those that x decides in buffers; and what kind of state it has."""
        if isinstance(mix, LinearAttention):
            return Coefficients(), LinearState
        if isinstance(mix, Recurrence):
            return self._recurrence(mix, q), RecurrentState
        beta, gamma = mix.coefficients() if isinstance(mix, LearnedMomentum) else (mix.beta, mix.gamma)
        return member(q, MOMENTUM_ATTENTION, {"beta": beta, "gamma": gamma})[0], MomentumState

    def _recurrence(self, mix: Recurrence, q: Tensor) -> Coefficients:
        made = mix.combined({name: GateValue(gate) for name, gate in mix.gates().items()}, q.device)
        numbers = {name: x for name, x in made.items() if not isinstance(x, GateValue)}
        c, _ = member(q, {name: FAMILY[name] for name in numbers}, numbers)
        values: list[GateValue] = []  # each once, those that others refer to first
        for value in made.values():
            if isinstance(value, GateValue) and value not in values:
                values.append(value)
        values.sort(key=lambda value: value.complement is not None)
        if not values:
            return c
        outs = [q.new_empty(*q.shape[:2], 1) for _ in values]
        tasks = []
        for value, out in zip(values, outs, strict=True):
            gate = value.gate
            rate, offset = (gate.rate.exp(), gate.offset) if isinstance(gate, Decay) else (None, None)
            of = -1 if value.complement is None else values.index(value.complement)
            most = gate.most if isinstance(gate, Strength) else 1.0
            tasks.append(GateTask(KINDS[type(gate)], self._columns(gate.project), out, most, rate, offset, of))
        self.program.gates(tasks)
        found = {name: outs[values.index(x)] for name, x in made.items() if isinstance(x, GateValue)}
        return c._replace(**found)
