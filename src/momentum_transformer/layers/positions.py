"""Where a token stands, as a number and as fixed sines and cosines."""

import math

import torch
from torch import Tensor

from ..context import current_context


def positions_of(n: int, device: torch.device) -> Tensor:
    """(n,) of the tokens of a sequence, or of this process's part of it."""
    context = current_context()
    first = 0 if context is None else context.first_position(n, device)
    return torch.arange(first, first + n, device=device)


def sinusoids(positions: Tensor, width: int) -> Tensor:
    """(..., ) positions → (..., width): sines at even, cosines at odd features, wavelengths up to 10,000 · 2π."""
    if width % 2:
        raise ValueError(f"width of positions must be even, not {width}")
    rate = torch.exp(torch.arange(0, width, 2, device=positions.device) * (-math.log(10_000) / width))
    angle = positions[..., None] * rate
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(-2)
