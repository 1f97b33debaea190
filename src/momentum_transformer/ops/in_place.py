"""Decoding on buffers that stay where they are: what lies between the matrix multiplications of a layer.

Each object is made once, for buffers that the caller fills, and called once a token. Nothing is checked then, nothing
is allocated, and no gradients are known.
"""

import ctypes
from typing import Any

import torch

from ..kernels.causal import step_problem
from ..kernels.library import Connect, Missing, Native, native, pointer
from .adaptive import highest
from .shapes import Tensor


def _library() -> Native:
    found = native()
    if isinstance(found, Missing):
        raise ValueError(f"decoding in place needs the native kernels, which are {found.reason}")
    return found


class AttentionInPlace:
    """One token of attention (eq. 8, 12): reads q, k (b, h, d), v (b, h, e); changes `state`; writes y (b, h, e)."""

    def __init__(
        self, recurrence: Any, q: Tensor, k: Tensor, v: Tensor, y: Tensor, state: Any, *, elu: bool, normalize: bool
    ) -> None:
        beta, gamma = getattr(recurrence, "beta", None), getattr(recurrence, "gamma", None)
        parts = (getattr(state, "m", None), state.s, state.z)
        problem = step_problem(
            q, k, v, y, before=parts, after=parts, beta=beta, gamma=gamma, elu=elu, normalize=normalize, eps=1e-6
        )
        self._kept = (q, k, v, y, beta, gamma, parts, problem)  # the library knows addresses only
        self._call, self._problem = _library().step, ctypes.byref(problem)

    def __call__(self) -> None:
        if self._call(self._problem):
            raise MemoryError("the native kernels found no memory for their scratch")


class ConnectionInPlace:
    """out = norm(x + γv), v ← βv + update (eq. 4, 15, 18), for x, update, v, out (b, width).

    Args:
        velocity: v, shared by the layers; None for a plain residual. `first` says that it holds nothing yet.
        previous: the update of the layer before, for adaptive momentum; β is then 1 - δ, the largest it may become.
        norm: weight and bias, or None to leave x + γv as it is.
    """

    def __init__(
        self,
        x: Tensor,
        update: Tensor,
        out: Tensor,
        *,
        beta: float = 0.0,
        gamma: float = 1.0,
        velocity: Tensor | None = None,
        first: bool = False,
        previous: Tensor | None = None,
        norm: tuple[Tensor, Tensor] | None = None,
        eps: float = 1e-5,
    ) -> None:
        weight, bias = (None, None) if norm is None else norm
        if previous is not None:
            beta = highest(1 - beta, x.dtype)
        problem = Connect(rows=x.shape[0], width=x.shape[1], first=first, beta=beta, gamma=gamma, eps=eps)
        problem.threads = min(torch.get_num_threads(), 1 + x.numel() // 2**13)
        problem.is_double = x.element_size() == 8
        problem.x, problem.update, problem.out = x.data_ptr(), update.data_ptr(), out.data_ptr()
        problem.velocity, problem.previous = pointer(velocity), pointer(previous)
        problem.weight, problem.bias = pointer(weight), pointer(bias)
        self._kept = (x, update, out, velocity, previous, weight, bias, problem)
        self._call, self._problem = _library().connect, ctypes.byref(problem)

    def __call__(self) -> None:
        self._call(self._problem)
