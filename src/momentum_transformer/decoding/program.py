"""Decoding on preallocated buffers: all operations on one token, as one call of the native kernels.

A `TokenProgram` is recorded once, for buffers that the caller fills, and called once per token. A call checks nothing,
allocates nothing, and has no gradients.
"""

import ctypes
import math
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (the field's name for it)

from ..backend.cpu.library import (
    TASKS,
    CachedAttention,
    Linear,
    Missing,
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

ACTIVATIONS = (None, "relu", "gelu")  # in the order of native/program.h
PANEL = 32  # columns of a panel of weights, PANEL_COLUMNS in native/linear.h
MULTIPLY_ADDS_PER_THREAD = 2**16  # fewer do not pay for starting a thread


class TokenProgram:
    """A list of tasks; a call runs them all, in the order in which they were added."""

    def __init__(self) -> None:
        found = native()
        if isinstance(found, Missing):
            raise ValueError(f"decoding in place needs the native kernels, which are {found.reason}")
        self._native = found
        self._tasks: list[Task] = []
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
        self, x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor, *, activation: str | None = None
    ) -> None:
        """out = activation(x weightᵀ + bias): x (b, in_features), weight (out_features, in_features)."""
        out_features, in_features = weight.shape
        padding = -out_features % PANEL
        panels = F.pad(weight, (0, 0, 0, padding)).unflatten(0, (-1, PANEL)).transpose(1, 2).contiguous()
        bias = weight.new_zeros(out_features + padding) if bias is None else F.pad(bias, (0, padding))
        params = Linear(rows=x.shape[0], in_features=in_features, out_features=out_features)
        params.activation = ACTIVATIONS.index(activation)
        params.x, params.weights, params.bias, params.out = map(pointer, (x, panels, bias, out))
        self._multiply_adds += x.shape[0] * weight.numel()
        self._add(params, x, panels, bias, out)

    def attention_step(
        self, c: Coefficients, q: Tensor, k: Tensor, v: Tensor, y: Tensor, state: Any, *, elu: bool, normalize: bool
    ) -> None:
        """Linear or momentum attention (eq. 8, 12): q, k (b, h, d), v, y (b, h, e); updates `state` in place."""
        beta, gamma = c.beta, c.gamma
        parts = (getattr(state, "m", None), state.s, state.z)
        params = step_problem(
            q, k, v, y, before=parts, after=parts, beta=beta, gamma=gamma, elu=elu, normalize=normalize, eps=1e-6
        )
        self._add(params, q, k, v, y, beta, gamma, parts)

    def cached_attention(
        self, q: Tensor, k: Tensor, v: Tensor, y: Tensor, cache: CacheState, length: "ctypes.c_int64"
    ) -> None:
        """Softmax attention (eq. 3) with a KV cache: appends k and v at position `length`, then attends to all."""
        (b, h, d), e = q.shape, v.shape[-1]
        params = CachedAttention(b=b, h=h, d=d, e=e, capacity=cache.k.shape[2], scale=1 / math.sqrt(d))
        params.q, params.k, params.v, params.y = map(TensorView.of, (q, k, v, y))
        params.key_cache, params.value_cache, params.mask = map(pointer, cache)
        params.length = ctypes.addressof(length)
        self._add(params, q, k, v, y, cache, length)

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
        norm: torch.nn.LayerNorm | None,
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
        weight, bias, params.eps = (None, None, 0.0) if norm is None else (norm.weight, norm.bias, norm.eps)
        tensors = (x, update, previous_update, weight, bias, velocity, out)
        params.x, params.update, params.previous_update, *_ = map(pointer, tensors)
        *_, params.weight, params.bias, params.velocity, params.out = map(pointer, tensors)
        self._add(params, *tensors)

    def _add(self, params: ctypes.Structure, *references: Any) -> None:
        self._references += [params, *references]
        self._tasks.append(Task(TASKS.index(type(params)), ctypes.addressof(params)))
