"""The linear map of a layer: PyTorch's own, or oneDNN where that is faster.

PyTorch multiplies float32 matrices on a CPU with MKL, which uses half of the vector width on AMD's processors with
AVX-512. oneDNN, which comes with PyTorch as well, uses all of it, in twice as many operations a second.
"""

import platform
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (the field's name for it)
from torch import Tensor

from ..ops.tracing import eager, has_tangent

LEAST = 1 << 21  # multiplications: with fewer, oneDNN's own preparations cost more than it gains
CPU_INFO = Path("/proc/cpuinfo")


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`torch.nn.functional.linear`.

    Args:
        x: (..., k).
        weight: (m, k).
        bias: (m,).

    Returns:
        x weightᵀ + bias, (..., m).

    Example:
        >>> linear(torch.ones(2, 3), torch.ones(4, 3)).shape
        torch.Size([2, 4])
    """
    if not _serves(x, weight, bias):
        return F.linear(x, weight, bias)
    if torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in (x, weight, bias)):
        found: Tensor = _Linear.apply(x, weight, bias)
        return found
    return _multiplied(x, weight, bias)


def product(a: Tensor, b: Tensor) -> Tensor:
    """a b of matrices (n, k) and (k, m), without gradients."""
    return _multiplied(a, b.T) if _serves(a, b.T, None) else a @ b


def _serves(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    if torch.compiler.is_compiling():  # a compiler has its own way, and cannot trace the questions below
        return False
    if not prefers_onednn() or x.dtype != torch.float32 or x.numel() * weight.shape[0] < LEAST:
        return False
    if not all(one is None or (one.is_cpu and one.dtype == torch.float32) for one in (x, weight, bias)):
        return False
    if weight.ndim != 2 or x.shape[-1] != weight.shape[1] or not (bias is None or bias.shape == weight.shape[:1]):
        return False  # PyTorch says what is wrong
    if torch.is_autocast_enabled("cpu") or not torch.backends.mkldnn.enabled:
        return False
    return eager(x, weight, bias) and not has_tangent(x, weight, bias)


@cache
def prefers_onednn() -> bool:
    """Whether this machine is one on which MKL is slow."""
    return (
        torch.backends.mkl.is_available()
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
        and "AMD" in _vendor()
    )


def _vendor() -> str:
    try:
        lines = CPU_INFO.read_text(errors="replace").splitlines()
    except OSError:  # not Linux
        return platform.processor()
    return next((line for line in lines if line.startswith("vendor_id")), "")


def _multiplied(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    found: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return found


class _Linear(torch.autograd.Function):
    """dx = dy weight, d_weight = dyᵀ x, d_bias = Σ dy."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _multiplied(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        wants_x, wants_weight, wants_bias = ctx.needs_input_grad
        # gradients of gradients are PyTorch's own
        times = torch.matmul if torch.is_grad_enabled() else product
        rows, dy_rows = x.flatten(0, -2), dy.flatten(0, -2).contiguous()
        dx = times(dy_rows, weight).view(x.shape) if wants_x else None
        d_weight = None
        if wants_weight:  # the longer side of the result as its rows, which is faster
            is_tall = weight.shape[0] >= weight.shape[1]
            d_weight = times(dy_rows.T, rows) if not is_tall else times(rows.T, dy_rows).T
        return dx, d_weight, dy_rows.sum(0) if wants_bias else None
