"""Decoding on buffers that stay where they are: all that happens to one token, as one call of the native kernels.

A `TokenProgram` is written once, for buffers that the caller fills, and called once a token. Nothing is checked then,
nothing is allocated, and no gradients are known.
"""

import ctypes
import math
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (the field's name for it)

from ..backend.cpu.library import Connect, Missing, Product, Program, Recall, Rows, Task, native, pointer
from ..backend.cpu.step_operator import step_problem
from ..ops.adaptive import highest
from ..ops.coefficients import Coefficients
from ..ops.shapes import Tensor
from ..ops.state import CacheState

ACTIVATIONS = (None, "relu", "gelu")
PANEL = 32  # columns of weights side by side, as native/product.h reads them
WORTH_A_THREAD = 2**16  # multiplications


class TokenProgram:
    """Tasks in the order in which they were added; a call runs them all."""

    def __init__(self) -> None:
        found = native()
        if isinstance(found, Missing):
            raise ValueError(f"decoding in place needs the native kernels, which are {found.reason}")
        self._native = found
        self._tasks: list[Task] = []
        self._kept: list[Any] = []  # the library knows addresses only
        self._multiplications = 0
        self._call: Any = None
        self._program: Any = None

    def __call__(self) -> None:
        if self._call(self._program):
            raise MemoryError("the native kernels found no memory for their scratch")

    def finish(self, dtype: torch.dtype) -> None:
        """Nothing more will be added; every buffer is of this dtype."""
        tasks = (Task * len(self._tasks))(*self._tasks)
        threads = min(torch.get_num_threads(), 1 + self._multiplications // WORTH_A_THREAD)
        program = Program(count=len(tasks), threads=threads)
        program.tasks = ctypes.addressof(tasks)
        self._kept += [tasks, program]
        self._call, self._program = self._native.of(dtype).program, ctypes.byref(program)

    def multiply(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor, *, activation: str | None = None
    ) -> None:
        """out = activation(x weightᵀ + bias), for x (b, inner), weight (outer, inner), out (b, outer)."""
        outer, inner = weight.shape
        more = -outer % PANEL
        panels = F.pad(weight, (0, 0, 0, more)).unflatten(0, (-1, PANEL)).transpose(1, 2).contiguous()
        bias = weight.new_zeros(outer + more) if bias is None else F.pad(bias, (0, more))
        problem = Product(rows=x.shape[0], inner=inner, outer=outer, activation=ACTIVATIONS.index(activation))
        problem.x, problem.weights, problem.bias, problem.out = map(pointer, (x, panels, bias, out))
        self._multiplications += x.shape[0] * weight.numel()
        self._add(0, problem, x, panels, bias, out)

    def recur(
        self, c: Coefficients, q: Tensor, k: Tensor, v: Tensor, y: Tensor, state: Any, *, elu: bool, normalize: bool
    ) -> None:
        """Attention (eq. 8, 12): reads q, k (b, h, d), v (b, h, e); changes `state`; writes y (b, h, e)."""
        beta, gamma = c.beta, c.gamma
        parts = (getattr(state, "m", None), state.s, state.z)
        problem = step_problem(
            q, k, v, y, before=parts, after=parts, beta=beta, gamma=gamma, elu=elu, normalize=normalize, eps=1e-6
        )
        self._add(1, problem, q, k, v, y, beta, gamma, parts)

    def recall(self, q: Tensor, k: Tensor, v: Tensor, y: Tensor, cache: CacheState, count: "ctypes.c_int64") -> None:
        """Softmax attention (eq. 3): writes k and v into place `count` of the cache, then y from all up to there."""
        (b, h, d), e = q.shape, v.shape[-1]
        problem = Recall(b=b, h=h, d=d, e=e, room=cache.k.shape[2], scale=1 / math.sqrt(d))
        problem.q, problem.k, problem.v, problem.y = map(Rows.of, (q, k, v, y))
        problem.keys, problem.values, problem.mask = map(pointer, cache)
        problem.count = ctypes.addressof(count)
        self._add(2, problem, q, k, v, y, cache, count)

    def connect(
        self,
        x: Tensor,
        update: Tensor | None,
        out: Tensor,
        *,
        beta: float = 0.0,
        gamma: float = 1.0,
        velocity: Tensor | None = None,
        first: bool = False,
        previous: Tensor | None = None,
        norm: torch.nn.LayerNorm,
    ) -> None:
        """out = norm(x + γv), v ← βv + update (eq. 4, 15, 18), for x, update, v, out (b, width).

        Args:
            update: None for zeros: only the norm.
            velocity: v, shared by the layers; None for a plain residual. `first` says that it holds nothing yet.
            previous: the update of the layer before, for adaptive momentum; β is then 1 - δ, the largest it may be.
        """
        if previous is not None:
            beta = highest(1 - beta, x.dtype)
        problem = Connect(rows=x.shape[0], width=x.shape[1], first=first, beta=beta, gamma=gamma, eps=norm.eps)
        tensors = (x, update, previous, norm.weight, norm.bias, velocity, out)
        problem.x, problem.update, problem.previous, *_ = map(pointer, tensors)
        *_, problem.weight, problem.bias, problem.velocity, problem.out = map(pointer, tensors)
        self._add(3, problem, *tensors)

    def _add(self, kind: int, problem: ctypes.Structure, *kept: Any) -> None:
        self._kept += [problem, *kept]
        self._tasks.append(Task(kind, ctypes.addressof(problem)))
