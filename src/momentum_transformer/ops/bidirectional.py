"""Attention without causal order: every query sees every key (eq. 5 and eq. 14).

Linear in the number of queries and keys by associativity alone; queries and keys may differ in number.
"""

import torch

from .geometric import geometric_sums
from .shapes import Bool, Float, Tensor


def weights_by_distance(
    beta: Float[Tensor, "*h"], gamma: Float[Tensor, "*h"], length: int
) -> Float[Tensor, "*h {length+1}"]:
    """γ(1 - βʳ)/(1 - β) for the r-th key from the end, r = 0 … length."""
    return gamma[..., None] * geometric_sums(beta, length)


def key_weights(sums: Float[Tensor, "*h r"], *, mask: Bool[Tensor, "*#b m"] | None = None) -> Float[Tensor, "*bh m"]:
    """γ(1 - β^(N-j+1))/(1 - β) for each key j, by its distance to the end in real tokens; of `weights_by_distance`."""
    length = sums.shape[-1] - 1
    if mask is None:
        return sums[..., 1:].flip(-1)
    to_end = mask.long().flip(-1).cumsum(-1).flip(-1)
    lead = torch.broadcast_shapes(sums.shape[:-1], to_end.shape[:-1])
    return sums.expand(*lead, length + 1).gather(-1, to_end.expand(*lead, length))


def bidirectional(
    q: Float[Tensor, "*b n d"],
    k: Float[Tensor, "*b m d"],
    v: Float[Tensor, "*b m e"],
    weight: Float[Tensor, "*h m 1"] | None = None,
) -> tuple[Float[Tensor, "*b n e"], Float[Tensor, "*b n"]]:
    """Numerator φ(q)ᵀ Σ wⱼ φ(kⱼ)vⱼᵀ and denominator φ(q)ᵀ Σ φ(kⱼ). q, k are features, zero where masked."""
    weighted = k if weight is None else k * weight
    numerator = q @ (weighted.transpose(-1, -2) @ v)
    denominator = (q @ k.sum(-2)[..., None]).squeeze(-1)
    return numerator, denominator
