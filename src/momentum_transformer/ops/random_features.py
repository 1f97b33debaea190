"""Positive random features of the softmax kernel (Performer's FAVOR+).

exp(q·k/√d) is the mean over Gaussian ω of φ(q)φ(k) with φ(x) = exp(ωᵀx/d^¼ - ‖x‖²/2√d). Orthogonal ω estimate it with
less variance than independent ones.
"""

import torch

from .shapes import Float, Tensor


def orthogonal_gaussian(features: int, width: int, *, seed: int) -> Float[Tensor, "features width"]:
    """Gaussian directions, orthogonal within each block of `width` rows; the same ones for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    blocks = -(-features // width)
    gaussian = torch.randn(blocks, width, width, generator=generator, dtype=torch.float64)
    directions, upper = torch.linalg.qr(gaussian)
    # without this, QR prefers some signs to others, and the directions would not be uniform
    directions = directions * upper.diagonal(dim1=-2, dim2=-1).sign()[:, None, :]
    lengths = torch.randn(features, width, generator=generator, dtype=torch.float64).norm(dim=-1)
    return directions.transpose(-1, -2).reshape(-1, width)[:features] * lengths[:, None]


def log_features(x: Float[Tensor, "*b n d"], directions: Float[Tensor, "m d"]) -> Float[Tensor, "*b n m"]:
    """log φ(x), so that the caller may choose a scale at which nothing overflows."""
    x = x * x.shape[-1] ** -0.25
    return x @ directions.T - x.square().sum(-1, keepdim=True) / 2
