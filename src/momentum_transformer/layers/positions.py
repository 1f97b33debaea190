"""Where a token stands: fixed sines and cosines."""

import math

import torch
from torch import Tensor


def sinusoids(positions: Tensor, width: int) -> Tensor:
    """(..., ) positions → (..., width): sines at even, cosines at odd features, wavelengths up to 10,000 · 2π."""
    if width % 2:
        raise ValueError(f"width of positions must be even, not {width}")
    rate = torch.exp(torch.arange(0, width, 2, device=positions.device) * (-math.log(10_000) / width))
    angle = positions[..., None] * rate
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(-2)
