"""Whether the arguments of a call fit together, in the words of who calls."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

Sizes = dict[str, int | None]  # of the axes B T H K HV V N and of one that is 1; None is any


def check_shapes(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor | None, others: Mapping[str, tuple[Any, str]] | None = None
) -> None:
    """Refuse tensors that do not fit together.

    Args:
        q: (B, T, H, K); k likewise.
        v: (B, T, HV, V).
        cu_seqlens: with it, states are one a document.
        others: by name, an argument and what it may be: "B T HV", or several that "|" parts; "number" is a number.
    """
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if not isinstance(tensor, Tensor) or tensor.ndim != 4:
            raise ValueError(f"{name} must be a tensor with 4 axes (batch, tokens, heads, width), not {_said(tensor)}")
    b, t, heads, width = q.shape
    sizes: Sizes = {"B": b, "T": t, "H": heads, "K": width, "HV": v.shape[2], "V": v.shape[3]}
    sizes |= {"N": b if cu_seqlens is None else None, "1": 1}
    _check("k", k, "B T H K", sizes)
    _check("v", v, "B T HV V", sizes)
    if v.shape[2] % max(heads, 1):
        raise ValueError(f"v must have a multiple of the {heads} heads of q and k, not {v.shape[2]}")
    for name, (x, allowed) in (others or {}).items():
        if x is not None:
            _check(name, x, allowed, sizes)


def check_count(name: str, x: Any, count: int, meaning: str) -> None:
    """Refuse what has not as many numbers, in whatever shape."""
    if x is not None and (not isinstance(x, Tensor) or x.numel() != count):
        raise ValueError(f"{name} must be a tensor of {count} numbers, {meaning}, not {_said(x)}")


def parts_of_state(state: Any, count: int, meaning: str) -> tuple[Any, ...]:
    """The parts of an initial state that has several."""
    if not isinstance(state, tuple | list) or len(state) != count:
        given = f"{len(state)} parts" if isinstance(state, tuple | list) else _said(state)
        raise ValueError(f"initial_state must have {count} parts, {meaning}, not {given}")
    return tuple(state)


def _check(name: str, x: Any, allowed: str, sizes: Sizes) -> None:
    choices = [choice.split() for choice in allowed.split("|")]
    for axes in choices:
        if axes == ["number"]:
            fits = isinstance(x, int | float) and not isinstance(x, bool)
        else:
            fits = isinstance(x, Tensor) and x.ndim == len(axes)
            fits = fits and all(sizes[a] in (None, n) for a, n in zip(axes, x.shape, strict=True))
        if fits:
            return
    raise ValueError(f"{name} must be {' or '.join(_shape(axes, sizes) for axes in choices)}, not {_said(x)}")


def _shape(axes: list[str], sizes: Sizes) -> str:
    if axes == ["number"]:
        return "a number"
    numbers = ", ".join(axis if sizes[axis] is None else str(sizes[axis]) for axis in axes)
    return f"a tensor ({', '.join(axes)}) = ({numbers})"


def _said(x: Any) -> str:
    return f"one of shape {tuple(x.shape)}" if isinstance(x, Tensor) else f"a {type(x).__name__}"
