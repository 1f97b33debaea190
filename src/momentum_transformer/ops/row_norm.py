"""Rows of a length of about one: the norm of features, and the norm and gate behind a mixer."""

import torch

from .shapes import Float, Tensor


def row_norm(
    x: Float[Tensor, "b h n d"],
    weight: Float[Tensor, " d"] | None = None,
    gate: Float[Tensor, "b h n d"] | None = None,
    *,
    mean: bool,
    eps: float,
) -> Float[Tensor, "b h n d"]:
    """x/√(Σx² + eps), or of the mean of x²; times `weight` and sigmoid(`gate`). Computed in float32 or wider."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    squares = wide.square()
    size = squares.mean(-1, keepdim=True) if mean else squares.sum(-1, keepdim=True)
    y = wide * torch.rsqrt(size + eps)
    if weight is not None:
        y = y * weight.to(y.dtype)
    if gate is not None:
        y = y * gate.to(y.dtype).sigmoid()
    return y.to(x.dtype)
