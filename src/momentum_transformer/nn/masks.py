"""PyTorch's attention masks as what a linear-time member can do: hide keys, and keep causal order."""

import torch
from torch import Tensor

REFUSAL = (
    "linear-time attention sees all tokens, or all earlier ones, without those that are hidden from every query; {} "
    "must be a mask of this kind, or None. An arbitrary one needs softmax attention"
)


def seen(mask: Tensor, name: str, *, hidden: bool) -> Tensor:
    """True where a key is seen. A bool mask is True where it is `hidden`, or where it is not; a float one is 0 where a
    key is seen and -inf, or the lowest number, where it is not."""
    if mask.dtype == torch.bool:
        return ~mask if hidden else mask
    if not mask.is_floating_point():
        raise ValueError(f"{name} must be bool or floating point, not {mask.dtype}")
    shown = mask == 0
    if not bool((shown | (mask <= torch.finfo(mask.dtype).min)).all()):
        raise ValueError(
            f"{name} adds to the scores, and linear-time attention has none: only 0 and -inf mean something"
        )
    return shown


def split(visible: Tensor, name: str) -> tuple[Tensor | None, bool]:
    """A mask (b or 1, h or 1, n or 1, m), True where a query sees a key: a key mask (b or 1, m) and causal order."""
    if visible.shape[1] > 1:
        if not bool((visible == visible[:, :1]).all()):
            raise ValueError(f"{REFUSAL.format(name)} (this one differs from head to head)")
        visible = visible[:, :1]
    if visible.shape[2] == 1:
        return visible[:, 0, 0], False
    keys = visible.any(2, keepdim=True)
    n, m = visible.shape[2:]
    every = keys.expand_as(visible)
    causal = not bool((visible == every).all())
    order = torch.ones(n, m, dtype=torch.bool, device=visible.device).tril()
    if causal and not (n == m and bool((visible == (every & order)).all())):
        raise ValueError(REFUSAL.format(name))
    return None if bool(keys.all()) else keys[:, 0, 0], causal
