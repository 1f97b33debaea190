"""Powers of β and their sums, stable for every β in [0, 1).

The paper's weight (1 - βʳ)/(1 - β) loses all its digits as β tends to 1; the sum 1 + β + … + βʳ⁻¹, which it
stands for, loses none. Everything here is float64 (float32 on devices without it) and small: one value a
step, never one a pair of tokens.
"""

import torch

from .shapes import Float, Tensor


def powers(beta: Float[Tensor, "*h"], count: int) -> Float[Tensor, "*h {count}"]:
    """β⁰, β¹, …, βᶜᵒᵘⁿᵗ⁻¹, with finite first and second derivatives at β = 0."""
    exponent = torch.arange(count, device=beta.device)
    power = beta[..., None].pow(exponent.clamp(min=1))
    return torch.where(exponent == 0, torch.ones_like(power), power)


def geometric_sums(beta: Float[Tensor, "*h"], count: int) -> Float[Tensor, "*h {count+1}"]:
    """0, 1, 1 + β, …, 1 + β + … + βᶜᵒᵘⁿᵗ⁻¹: entry r is (1 - βʳ)/(1 - β) without the cancellation."""
    sums = powers(beta, count).cumsum(-1)
    return torch.cat([torch.zeros_like(beta)[..., None], sums], -1)
