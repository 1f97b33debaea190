"""Checks of what users pass in: the argument, what was given, what is allowed."""

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any

import torch
from torch import Tensor


def check_qkv(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> None:
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if not isinstance(tensor, Tensor):
            raise ValueError(f"{name} must be a tensor, not {type(tensor).__name__}")
        if tensor.ndim != 4:
            raise ValueError(f"{name} must have 4 axes (batch, heads, length, width), not shape {tuple(tensor.shape)}")
        if not tensor.is_floating_point():
            raise ValueError(f"{name} must have a floating-point dtype, not {tensor.dtype}")
    for name, tensor in (("k", k), ("v", v)):
        if tensor.dtype != q.dtype:
            raise ValueError(f"{name} must have the dtype of q, {q.dtype}, not {tensor.dtype}; cast one of them")
        if tensor.device != q.device:
            raise ValueError(f"{name} must be on the device of q, {q.device}, not {tensor.device}")
    b, h, n, d = q.shape
    m = k.shape[2]
    if k.shape != (b, h, m, d):
        raise ValueError(f"k must have shape ({b}, {h}, m, {d}) to match q {tuple(q.shape)}, not {tuple(k.shape)}")
    if v.shape[:3] != (b, h, m):
        raise ValueError(f"v must have shape ({b}, {h}, {m}, e) to match k {tuple(k.shape)}, not {tuple(v.shape)}")
    if causal and n != m:
        raise ValueError(
            f"causal attention needs as many keys as queries, not k of length {m} for q of length {n}; "
            "pass causal=False for cross attention, or state=... for keys that came earlier"
        )


def check_mask(name: str, mask: Tensor | None, tokens: Tensor) -> None:
    """`mask` is bool with the batch and length of `tokens` (batch, heads, length, width)."""
    if mask is None:
        return
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        given = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise ValueError(f"{name} must be a bool tensor (True = the token exists), not {given}")
    if mask.shape != (tokens.shape[0], tokens.shape[2]):
        raise ValueError(f"{name} must have shape ({tokens.shape[0]}, {tokens.shape[2]}), not {tuple(mask.shape)}")
    if mask.device != tokens.device:
        raise ValueError(f"{name} must be on {tokens.device}, the device of q, not {mask.device}")


def check_choice(name: str, value: object, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, not {value!r}")


def check_state(state: Any, kind: type[Any], device: torch.device) -> None:
    """`state` is a `kind` of tensors on `device`, float32 or wider."""
    if type(state) is not kind:
        raise ValueError(f"state must be a {kind.__name__}, not {type(state).__name__}")
    for name, tensor in zip(kind._fields, state, strict=True):
        if not isinstance(tensor, Tensor):
            raise ValueError(f"state.{name} must be a tensor, not {type(tensor).__name__}")
        if tensor.device != device:
            raise ValueError(f"state.{name} must be on {device}, the device of q, not {tensor.device}")
        if tensor.dtype not in (torch.float32, torch.float64):
            raise ValueError(f"state.{name} must be float32 or float64, not {tensor.dtype}")


def check_state_shapes(state: Any, shapes: dict[str, tuple[int, ...]]) -> None:
    for name, shape in shapes.items():
        given = tuple(getattr(state, name).shape)
        if given != shape:
            raise ValueError(f"state.{name} must have shape {shape} for this batch, heads and width, not {given}")


def check_like(name: str, tensor: Any, like: Tensor, like_name: str) -> None:
    """`tensor` has the shape and device of `like`; dtypes may differ, as they do under autocast."""
    if not isinstance(tensor, Tensor):
        raise ValueError(f"{name} must be a tensor, not {type(tensor).__name__}")
    if tensor.shape != like.shape:
        raise ValueError(f"{name} must have the shape of {like_name}, {tuple(like.shape)}, not {tuple(tensor.shape)}")
    if tensor.device != like.device:
        raise ValueError(f"{name} must be on {like.device} like {like_name}, not {tensor.device}")


def check_number(name: str, value: object, *, below_one: bool) -> None:
    """`value` is a plain number: a momentum in [0, 1) (`below_one`) or a positive step size."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ValueError(f"{name} must be a number, not {type(value).__name__}")
    if not (0 <= float(value) < 1 if below_one else 0 < float(value) < math.inf):
        raise ValueError(f"{name} must be {_allowed(below_one)}, not {value}")


def coefficient(name: str, value: float | Tensor, heads: int, device: torch.device, *, below_one: bool) -> Tensor:
    """A momentum or step size as a float64 tensor of shape (1,) or (heads,) that keeps its gradient."""
    wide = torch.float32 if device.type == "mps" else torch.float64
    if not isinstance(value, Tensor):
        check_number(name, value, below_one=below_one)
        return torch.tensor([float(value)], dtype=wide, device=device)
    if value.shape not in ((), (heads,)):
        raise ValueError(f"{name} must be a number or have shape ({heads},), not {tuple(value.shape)}")
    if not value.is_floating_point():
        raise ValueError(f"{name} must have a floating-point dtype, not {value.dtype}")
    if value.device != device:
        raise ValueError(f"{name} must be on {device}, the device of q, not {value.device}")
    check_range(name, value, below_one=below_one)
    return value.reshape(-1).to(wide)


def check_range(name: str, value: Tensor, *, below_one: bool) -> None:
    """The same for each value of a tensor on the CPU; NaN passes, and propagates."""
    # a look at the values would break a compiled graph, and make the program wait for a GPU
    if torch.compiler.is_compiling() or value.device.type != "cpu":
        return
    outside = (value < 0) | (value >= 1) if below_one else (value <= 0) | value.isinf()
    if bool(outside.any()):
        shown = value.tolist() if value.numel() <= 16 else value[outside][0].item()
        raise ValueError(f"{name} must be {_allowed(below_one)}, not {shown}")


def _allowed(below_one: bool) -> str:
    return "in [0, 1)" if below_one else "positive and finite"
