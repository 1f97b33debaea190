"""Rows of a length of about one: the norm of features, and the norm and gate behind a mixer."""

import torch
import torch.nn.functional as F  # noqa: N812 (the field's name for it)

from .shapes import Float, Tensor

GATINGS = ("sigmoid", "silu", "silu first")  # the last one multiplies x before it is normed


def row_norm(
    x: Float[Tensor, "b h n d"],
    weight: Float[Tensor, " d"] | None = None,
    gate: Float[Tensor, "b h n d"] | None = None,
    *,
    mean: bool,
    eps: float,
    gating: str = "sigmoid",
) -> Float[Tensor, "b h n d"]:
    """x/√(Σx² + eps), or of the mean of x²; times `weight` and the opened `gate`. Computed in float32 or wider.

    Args:
        gating: sigmoid(gate), or SiLU(gate), times the row that is normed, or the row before it is.
    """
    y = x.to(torch.promote_types(x.dtype, torch.float32))
    if gate is not None:
        gate = gate.to(y.dtype)
        opened = gate.sigmoid() if gating == "sigmoid" else F.silu(gate)
    if gate is not None and gating == "silu first":
        y = y * opened
    squares = y.square()
    size = squares.mean(-1, keepdim=True) if mean else squares.sum(-1, keepdim=True)
    y = y * torch.rsqrt(size + eps)
    if weight is not None:
        y = y * weight.to(y.dtype)
    if gate is not None and gating != "silu first":
        y = y * opened
    return y.to(x.dtype)
