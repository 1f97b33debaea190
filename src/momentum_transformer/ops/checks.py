"""Checks of what users pass in: the argument, what was given, what is allowed."""

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .state import RecurrentState
from .tracing import eager

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def check_qkv(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, grouped: bool = False) -> None:
    """Tensors that fit each other; `grouped`: q and k may have fewer heads than v, a divisor of them."""
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if not isinstance(tensor, Tensor):
            raise ValueError(f"{name} must be a tensor, not {type(tensor).__name__}")
        if tensor.ndim != 4:
            raise ValueError(f"{name} must have 4 axes (batch, heads, length, width), not shape {tuple(tensor.shape)}")
        if tensor.dtype not in DTYPES:
            check_dtype(name, tensor)
    for name, tensor in (("k", k), ("v", v)):
        if tensor.dtype != q.dtype:
            raise ValueError(f"{name} must have the dtype of q, {q.dtype}, not {tensor.dtype}; cast one of them")
        if tensor.device != q.device:
            raise ValueError(f"{name} must be on the device of q, {q.device}, not {tensor.device}")
    b, h, n, d = q.shape
    m, e = k.shape[2], v.shape[3]
    if grouped and not h == k.shape[1] == v.shape[1]:
        h = k.shape[1]
        for name, tensor, shared in (("q", q, (h, v.shape[1])), ("k", k, (h,))):
            heads = tensor.shape[1]
            fits = heads == v.shape[1] or (0 < heads < v.shape[1] and v.shape[1] % heads == 0)
            if not fits or heads not in shared:
                raise ValueError(
                    f"{name} must have as many heads as v, {v.shape[1]}, or a divisor of them that q and k share, "
                    f"not {tensor.shape[1]}"
                )
        q, v = q[:, :1].expand(b, h, n, d), v[:, :1].expand(v.shape[0], h, v.shape[2], e)
    if k.shape != (b, h, m, d):
        raise ValueError(f"k must have shape ({b}, {h}, m, {d}) to match q {tuple(q.shape)}, not {tuple(k.shape)}")
    if v.shape[:3] != (b, h, m):
        raise ValueError(f"v must have shape ({b}, {h}, {m}, e) to match k {tuple(k.shape)}, not {tuple(v.shape)}")
    if causal and n != m:
        raise ValueError(
            f"causal attention needs as many keys as queries, not k of length {m} for q of length {n}; "
            "pass causal=False for cross attention, or state=... for keys that came earlier"
        )


def check_dtype(name: str, tensor: Tensor) -> None:
    if not tensor.is_floating_point():
        raise ValueError(f"{name} must have a floating-point dtype, not {tensor.dtype}")
    if tensor.dtype not in DTYPES:
        raise ValueError(f"{name} must have 16 bits a number or more, not {tensor.dtype}; cast it to torch.bfloat16")


def check_mask(name: str, mask: Tensor | None, tokens: Tensor, *, meaning: str = "True = the token exists") -> None:
    """`mask` is bool with the batch and length of `tokens` (batch, heads, length, width)."""
    if mask is None:
        return
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        given = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise ValueError(f"{name} must be a bool tensor ({meaning}), not {given}")
    if mask.shape != (tokens.shape[0], tokens.shape[2]):
        raise ValueError(f"{name} must have shape ({tokens.shape[0]}, {tokens.shape[2]}), not {tuple(mask.shape)}")
    if mask.device != tokens.device:
        raise ValueError(f"{name} must be on {tokens.device}, the device of q, not {mask.device}")


def check_choice(name: str, value: object, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, not {value!r}")


def checked_state(state: Any, kind: type[Any], shapes: dict[str, tuple[int, ...] | None], q: Tensor) -> RecurrentState:
    """`state`, a `kind` with parts of these shapes (None: no such part), float32 or wider, on the device of q."""
    if type(state) is not kind:
        raise ValueError(f"state must be a {kind.__name__}, not {type(state).__name__}")
    wide = wide_dtype(q)
    for name, tensor in zip(kind._fields, state, strict=True):
        shape = shapes[name]
        if shape is None and tensor is not None:
            raise ValueError(f"state.{name} must be None: this member has no {name}, so the state is another's")
        if shape is None:
            continue
        if not isinstance(tensor, Tensor):
            raise ValueError(f"state.{name} must be a tensor, not {type(tensor).__name__}")
        if tensor.device != q.device:
            raise ValueError(f"state.{name} must be on {q.device}, the device of q, not {tensor.device}")
        if tensor.dtype not in (torch.float32, torch.float64):
            raise ValueError(f"state.{name} must be float32 or float64, not {tensor.dtype}")
        if tuple(tensor.shape) != shape:
            raise ValueError(
                f"state.{name} must have shape {shape} for this batch, heads and width, not {tuple(tensor.shape)}"
            )
        if tensor.dtype != wide:
            wide = torch.float64
    parts = (state.s, getattr(state, "m", None), state.z)
    return RecurrentState._make([x if x is None or x.dtype == wide else x.to(wide) for x in parts])


def wide_dtype(x: Tensor) -> torch.dtype:
    """What is computed with for x: float32, or x's own dtype where that is wider."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def check_options(chunk_size: object, eps: object) -> None:
    if chunk_size is None and type(eps) is float and 0 <= eps < math.inf:
        return  # the usual case leaves early: the checks below take longer than a small attention
    whole = isinstance(chunk_size, int) and not isinstance(chunk_size, bool)
    if chunk_size is not None and (not isinstance(chunk_size, int) or not whole or chunk_size < 1):
        raise ValueError(f"chunk_size must be a positive whole number or None, not {chunk_size!r}")
    if isinstance(eps, bool) or not isinstance(eps, Real):
        raise ValueError(f"eps must be a number, not {type(eps).__name__}")
    if not float(eps) >= 0:
        raise ValueError(f"eps must not be negative, not {eps}")
    if float(eps) == math.inf:
        raise ValueError("eps must be finite, not inf")


def check_erase(erase: object, k: Tensor, v: Tensor, width: int) -> None:
    """`erase` has the shape of the features of k, with as many heads as k or v."""
    if erase is None:
        return
    if not isinstance(erase, Tensor):
        raise ValueError(f"erase must be a tensor, not {type(erase).__name__}")
    b, h, n, d = k.shape
    if tuple(erase.shape) not in ((b, h, n, width), (b, v.shape[1], n, width)):
        like = "k" if width == d else "the features of k"
        raise ValueError(f"erase must have the shape of {like}, {(b, h, n, width)}, not {tuple(erase.shape)}")
    if erase.dtype != k.dtype or erase.device != k.device:
        raise ValueError(f"erase must be {k.dtype} on {k.device} like k, not {erase.dtype} on {erase.device}")


def check_like(name: str, tensor: Any, like: Tensor, like_name: str) -> None:
    """`tensor` has the shape and device of `like`; dtypes may differ, as they do under autocast."""
    if not isinstance(tensor, Tensor):
        raise ValueError(f"{name} must be a tensor, not {type(tensor).__name__}")
    if tensor.shape != like.shape:
        raise ValueError(f"{name} must have the shape of {like_name}, {tuple(like.shape)}, not {tuple(tensor.shape)}")
    if tensor.device != like.device:
        raise ValueError(f"{name} must be on {like.device} like {like_name}, not {tensor.device}")


class Interval(NamedTuple):
    """Which real numbers an argument may be, and the words for it."""

    words: str
    low: float
    high: float
    has_low: bool = False
    has_high: bool = False

    def holds(self, value: float) -> bool:
        return (value > self.low or (self.has_low and value == self.low)) and (
            value < self.high or (self.has_high and value == self.high)
        )

    def excludes(self, value: Tensor) -> Tensor:
        """Which values of a tensor are outside; NaN is not: it passes, and propagates."""
        below = value < self.low if self.has_low else value <= self.low
        return below | (value > self.high if self.has_high else value >= self.high)


MOMENTUM = Interval("in [0, 1)", 0.0, 1.0, has_low=True)
STEP_SIZE = Interval("positive and finite", 0.0, math.inf)
SHARE = Interval("in [0, 1]", 0.0, 1.0, has_low=True, has_high=True)
TEMPERATURE = Interval("0 or more", 0.0, math.inf, has_low=True)
FINITE = Interval("finite", -math.inf, math.inf)


def check_whole(name: str, value: object, least: int | None = None) -> None:
    """`value` is a whole number, of `least` or more."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ValueError(f"{name} must be a whole number, not {value!r}")
    if least is not None and int(value) < least:
        raise ValueError(f"{name} must be {least} or more, not {value}")


def check_number(name: str, value: object, allowed: Interval) -> None:
    """`value` is a plain number of the interval."""
    if type(value) is float and allowed.holds(value):
        return  # as nearly always; the next line takes longer
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ValueError(f"{name} must be a number, not {type(value).__name__}")
    if not allowed.holds(float(value)):
        raise ValueError(f"{name} must be {allowed.words}, not {value}")


def check_range(name: str, value: Tensor, allowed: Interval) -> None:
    """`check_number` for each value of a tensor on the CPU."""
    # a look at the values would break a compiled graph, and make the program wait for a GPU
    if value.device.type != "cpu" or not eager(value) or not value.numel():
        return
    low, high = torch.aminmax(value.detach() if value.requires_grad else value)
    if allowed.holds(float(low)) and allowed.holds(float(high)):
        return
    outside = allowed.excludes(value.detach())
    if bool(outside.any()):
        shown = value.tolist() if value.numel() <= 16 else value[outside][0].item()
        raise ValueError(f"{name} must be {allowed.words}, not {shown}")


def check_coefficient(
    name: str, value: Tensor, shapes: Sequence[tuple[int, ...]], device: torch.device, allowed: Interval
) -> None:
    """A tensor of one of these shapes, or of one number, on `device`, each value in the interval."""
    if value.shape != () and tuple(value.shape) not in shapes:
        *most, last = map(str, shapes)
        listed = f"{', '.join(most)} or {last}" if most else last
        raise ValueError(f"{name} must be a number or have shape {listed}, not {tuple(value.shape)}")
    check_dtype(name, value)
    if value.device != device:
        raise ValueError(f"{name} must be on {device}, the device of q, not {value.device}")
    check_range(name, value, allowed)
