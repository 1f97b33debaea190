"""What `momentum::recurrent` and its backward pass rely on: the kernels get bare pointers."""

from typing import Any

import torch
from torch import Tensor

from ...ops.coefficients import Coefficients
from .causal_operator import DTYPES, wide_dtype
from .operator_checks import check_tensor, check_tokens


def planes_of(beta: Tensor | None) -> int:
    return 1 if beta is None else 2


def check_inputs(inputs: tuple[Any, ...], tokens: tuple[Any, ...], normalize: bool) -> None:
    """The kernels get bare pointers, so everything they rely on is checked here."""
    q, k, v, erase, *coefficients, s, z = inputs
    if any(x.ndim != 4 for x in (q, k, v)):
        raise ValueError(f"q, k, v must have four axes, not {q.ndim}, {k.ndim}, {v.ndim}")
    if not (q.numel() and v.numel()):
        raise ValueError(f"q and v must not be empty: {tuple(q.shape)}, {tuple(v.shape)}")
    (b, h, n, d), e, wide = q.shape, v.shape[-1], wide_dtype(q)
    tensors = (q, k, v) if erase is None else (q, k, v, erase)
    if q.dtype not in DTYPES or any(x.dtype != q.dtype for x in tensors):
        raise ValueError(f"q, k, v and erase must have one dtype, not {', '.join(str(x.dtype) for x in tensors)}")
    if any(x.shape != q.shape for x in (k, *tensors[3:])) or v.shape[:3] != q.shape[:3]:
        raise ValueError(f"q, k, v, erase do not fit: {', '.join(str(tuple(x.shape)) for x in tensors)}")
    _check_coefficients(Coefficients(*coefficients), (b, h, n, d), wide)
    if normalize and (s is None) != (z is None):
        raise ValueError("s and z come together")
    shapes = ((b, h, planes_of(coefficients[1]), d, e), (b, h, d))
    for part, shape in zip((s, z), shapes, strict=True):
        if part is not None and (part.shape != shape or part.dtype != wide):
            raise ValueError(f"the state must be {wide} {shape}, not {part.dtype} {tuple(part.shape)}")
    reset, token_index, token_count = tokens
    check_tensor("reset", reset, (b, n), torch.bool)
    check_tokens((b, n), token_index, token_count)


def _check_coefficients(c: Coefficients, shape: tuple[int, int, int, int], wide: torch.dtype) -> None:
    heads = {x.shape[0] for x in c if x is not None and x.ndim == 1}
    if len(heads) > 1 or not heads <= {1, shape[1]}:
        raise ValueError(f"coefficients for all tokens must be one or one a head, not {sorted(heads)}")
    for name, x in zip(c._fields, c, strict=True):
        allowed: tuple[tuple[int, ...], ...] = (shape[:3], shape) if name == "alpha" else (shape[:3],)
        if x is None or (x.ndim == 1 and x.dtype == torch.float64):
            continue
        if x.dtype != wide or x.shape not in allowed:
            raise ValueError(f"{name} does not fit q {shape}: {x.dtype} {tuple(x.shape)}")


def check_saved(
    grads: tuple[Any, ...], inputs: tuple[Any, ...], saved: tuple[Tensor, ...], *, normalize: bool, segment: int
) -> None:
    q, _, v, _, _, beta, _, _, delta, *_ = inputs
    (b, h, n, d), e, wide, planes = q.shape, v.shape[-1], wide_dtype(q), planes_of(beta)
    parts = -(-n // segment)
    if grads[2] is not None and not normalize:
        raise ValueError("dz_after must be None without `normalize`: there is no z")
    expected: dict[str, tuple[Tensor | None, tuple[int, ...], torch.dtype]] = {
        "dy": (grads[0], tuple(v.shape), v.dtype),
        "y": (saved[0], tuple(v.shape), v.dtype),
        "ds_after": (grads[1], (b, h, planes, d, e), wide),
        "dz_after": (grads[2], (b, h, d), wide),
        "denominator": (saved[1] if normalize else None, (b, h, n), wide),
        "predictions": (None if delta is None else saved[2], (b, h, n, e), wide),
        "prefix": (saved[3] if parts > 1 else None, (b, h, parts * (planes * d * e + d)), wide),
    }
    for name, (x, shape, dtype) in expected.items():
        if x is not None and (tuple(x.shape) != shape or x.dtype != dtype):
            raise ValueError(f"{name} must be {dtype} {shape}, not {x.dtype} {tuple(x.shape)}")
    if not all(x.is_contiguous() for x in saved[1:]):
        raise ValueError("denominator, predictions and prefix must be contiguous")
