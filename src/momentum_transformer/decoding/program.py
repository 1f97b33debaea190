"""Decoding on preallocated buffers: all operations on one token, as one call of the native kernels.

A `TokenProgram` is recorded once, for buffers that the caller fills, and called once per token. A call checks nothing,
allocates nothing, and has no gradients.
"""

import ctypes
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 (the field's name for it)

from ..backend.cpu.library import (
    TASKS,
    CachedAttention,
    Convolution,
    Gate,
    Gates,
    Linear,
    Missing,
    NormAndGate,
    Program,
    ResidualNorm,
    Task,
    TensorView,
    native,
    pointer,
)
from ..backend.cpu.step_operator import step_problem
from ..ops.adaptive import highest
from ..ops.coefficients import Coefficients
from ..ops.shapes import Tensor
from ..ops.state import CacheState

ACTIVATIONS = (None, "relu", "gelu", "silu")  # in the order of native/program.h
GATES = ("strength", "step size", "decay")  # likewise
PANEL = 32  # columns of a panel of weights, PANEL_COLUMNS in native/linear.h
MULTIPLY_ADDS_PER_THREAD = 2**16  # fewer do not pay for starting a thread


class GateTask(NamedTuple):
    """One coefficient that x decides: `most` · sigmoid(x), softplus(x) or exp(-rate · softplus(x + offset))."""

    kind: str
    logits: Tensor  # (b, h)
    out: Tensor  # (b, h, 1)
    most: float = 1.0
    rate: Tensor | None = None  # (h,)
    offset: Tensor | None = None  # (h,)
    complement: int = -1  # the number of a gate g: the value is multiplied by 1 - g; -1: none


class TokenProgram:
    """A list of tasks; a call runs them all, in the order in which they were added.

    Tasks that go head by head are collected, and `run_heads` adds them as one chain: a head goes through all of them
    before the next one, without a barrier in between.
    """

    def __init__(self) -> None:
        found = native()
        if isinstance(found, Missing):
            raise ValueError(f"decoding in place needs the native kernels, which are {found.reason}")
        self._native = found
        self._tasks: list[Task] = []
        self._heads: list[ctypes.Structure] = []  # tasks of heads that are not in the program yet
        self._references: list[Any] = []  # keeps alive what the library has only pointers to
        self._multiply_adds = 0
        self._call: Any = None
        self._program: Any = None

    def __call__(self) -> None:
        if self._call(self._program):
            raise MemoryError("the native kernels found no memory for their scratch")

    def finish(self, dtype: torch.dtype) -> None:
        """To be called after the last task; every buffer must have this dtype."""
        tasks = (Task * len(self._tasks))(*self._tasks)
        threads = min(torch.get_num_threads(), 1 + self._multiply_adds // MULTIPLY_ADDS_PER_THREAD)
        program = Program(count=len(tasks), threads=threads)
        program.tasks = ctypes.addressof(tasks)
        self._references += [tasks, program]
        self._call, self._program = self._native.of(dtype).decode, ctypes.byref(program)

    def linear(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        out: Tensor,
        *,
        activation: str | None = None,
        factor: Tensor | None = None,
    ) -> None:
        """out = activation(x weightᵀ + bias) · factor: x (b, in_features), weight (out_features, in_features)."""
        out_features, in_features = weight.shape
        if x.shape[1] != in_features or x.stride(1) != 1 or out.shape != (x.shape[0], out_features):
            raise ValueError(f"x {tuple(x.shape)}, weight {tuple(weight.shape)} and out {tuple(out.shape)} do not fit")
        padding = -out_features % PANEL
        panels = F.pad(weight, (0, 0, 0, padding)).unflatten(0, (-1, PANEL)).transpose(1, 2).contiguous()
        bias = weight.new_zeros(out_features + padding) if bias is None else F.pad(bias, (0, padding))
        params = Linear(rows=x.shape[0], in_features=in_features, out_features=out_features, stride=x.stride(0))
        params.activation = ACTIVATIONS.index(activation)
        tensors = (x, panels, bias, factor, out)
        params.x, params.weights, params.bias, params.factor, params.out = map(pointer, tensors)
        self._multiply_adds += x.shape[0] * weight.numel()
        self._add(params, *tensors)

    def run_heads(self) -> None:
        """Add the tasks of heads that were collected, as one chain."""
        for i, params in enumerate(self._heads):
            self._tasks.append(Task(TASKS.index(type(params)), i > 0, ctypes.addressof(params)))
        self._heads = []

    def convolution(self, x: Tensor, weights: Tensor, past: Tensor, *, silu: bool) -> None:
        """A short convolution of x (b, 3, h, d) in place: weights (h, 3, taps, d), past (b, h, 3, taps - 1, d)."""
        b, _, h, d = x.shape
        taps = weights.shape[2]
        if weights.shape != (h, 3, taps, d) or past.shape != (b, h, 3, taps - 1, d) or not past.is_contiguous():
            raise ValueError(
                f"weights {tuple(weights.shape)} and past {tuple(past.shape)} do not fit {tuple(x.shape)}"
            )
        params = Convolution(b=b, h=h, d=d, taps=taps, silu=silu, stride=x.stride(0))
        weights = weights.contiguous()
        params.x, params.weights, params.past = map(pointer, (x, weights, past))
        self._add_heads(params, x, weights, past)

    def gates(self, tasks: Sequence[GateTask]) -> None:
        """Coefficients from their logits; a gate sees the values of those before it."""
        (b, h), stride = tasks[0].logits.shape, tasks[0].logits.stride(0)
        params = Gates(b=b, h=h, count=len(tasks), stride=stride)
        for i, task in enumerate(tasks):
            of_heads = [None if x is None else x.to(task.out.dtype).contiguous() for x in (task.rate, task.offset)]
            gate = Gate(kind=GATES.index(task.kind), complement=task.complement, most=task.most)
            gate.logits, gate.out, gate.rate, gate.offset = map(pointer, (task.logits, task.out, *of_heads))
            params.gates[i] = gate
            self._references += [task, of_heads]
        self._add_heads(params)

    def attention_step(
        self,
        c: Coefficients,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        y: Tensor,
        state: tuple[Tensor | None, Tensor, Tensor | None],
        *,
        features: int,
        normalize: bool,
        scale: float = 1.0,
    ) -> None:
        """A member of the family: q, k (b, h, 1, d), v, y (b, h, 1, e); updates `state`, m, s and z, in place."""
        options = {"features": features, "normalize": normalize, "eps": 1e-6, "scale": scale}
        params = step_problem(q, k, v, y, erase=None, before=state, after=state, c=c, **options)  # type: ignore[arg-type]
        self._add_heads(params, q, k, v, y, c, state)

    def norm_and_gate(self, y: Tensor, norm: torch.nn.RMSNorm | None, logits: Tensor | None) -> None:
        """y (b, h, 1, e) becomes RMSNorm(y) · sigmoid(logits), logits (b, h · e), in place."""
        b, h, _, e = y.shape
        params = NormAndGate(b=b, h=h, e=e, stride=0 if logits is None else logits.stride(0))
        weight, params.eps = (None, 0.0) if norm is None else (norm.weight, norm.eps)
        params.weight, params.logits, params.y = map(pointer, (weight, logits, y))
        self._add_heads(params, y, weight, logits)

    def cached_attention(
        self, q: Tensor, k: Tensor, v: Tensor, y: Tensor, cache: CacheState, *, given: int, steps: "ctypes.c_int64"
    ) -> None:
        """Softmax attention (eq. 3) over a ring of keys and values that held `given` tokens before the first step."""
        (b, h, _, d), e = q.shape, v.shape[-1]
        params = CachedAttention(b=b, h=h, d=d, e=e, capacity=cache.k.shape[2], given=given, scale=1 / math.sqrt(d))
        params.q, params.k, params.v, params.y = map(TensorView.of, (q, k, v, y))
        params.key_cache, params.value_cache, params.mask = map(pointer, cache)
        params.steps = ctypes.addressof(steps)
        self._add_heads(params, q, k, v, y, cache, steps)

    def residual_norm(
        self,
        x: Tensor,
        update: Tensor | None,
        out: Tensor,
        *,
        beta: float = 0.0,
        gamma: float = 1.0,
        velocity: Tensor | None = None,
        first_layer: bool = False,
        previous_update: Tensor | None = None,
        norm: torch.nn.LayerNorm | torch.nn.RMSNorm | None,
    ) -> None:
        """out = norm(x + γv), v ← βv + update (eq. 4, 15, 18), for x, update, v, out (b, width).

        Args:
            update: None for zeros: only the norm.
            norm: None for none: only the residual.
            velocity: v, shared by the layers; None for a plain residual.
            first_layer: whether v holds nothing yet.
            previous_update: that of the layer before, for adaptive momentum; β is then its upper bound, 1 - δ.
        """
        if previous_update is not None:
            beta = highest(1 - beta, x.dtype)
        params = ResidualNorm(rows=x.shape[0], width=x.shape[1], first_layer=first_layer)
        params.beta, params.gamma = beta, gamma
        weight, bias, params.eps = None, None, 0.0
        if norm is not None:
            weight, bias, params.eps = norm.weight, getattr(norm, "bias", None), norm.eps or 0.0
        tensors = (x, update, previous_update, weight, bias, velocity, out)
        params.x, params.update, params.previous_update, *_ = map(pointer, tensors)
        *_, params.weight, params.bias, params.velocity, params.out = map(pointer, tensors)
        self._add(params, *tensors)

    def _add(self, params: ctypes.Structure, *references: Any) -> None:
        self._references += [params, *references]
        self._tasks.append(Task(TASKS.index(type(params)), False, ctypes.addressof(params)))

    def _add_heads(self, params: ctypes.Structure, *references: Any) -> None:
        self._references += [params, *references]
        self._heads.append(params)
