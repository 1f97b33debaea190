"""Momentum attention as one n × n matrix: the paper's closed form, written out (eq. 13).

A reference for reading and testing, in quadratic time and memory.
"""

import torch

from .geometric import geometric_sums, powers
from .shapes import Bool, Float, Tensor
from .state import MomentumState


def momentum_quadratic(
    q: Float[Tensor, "*b n d"],
    k: Float[Tensor, "*b n d"],
    v: Float[Tensor, "*b n e"],
    state: MomentumState,
    *,
    beta: Float[Tensor, "*h"],
    gamma: Float[Tensor, "*h"],
    mask: Bool[Tensor, "*#b n"] | None = None,
) -> tuple[Float[Tensor, "*b n e"], Float[Tensor, "*b n"], MomentumState]:
    """Numerator, denominator and final state of eq. 13. q, k are features.

    A pair's weight depends on `steps`, the number of real tokens from key to query, both counted; the state
    that was given looks like one more key, `age` real tokens back.
    """
    n = q.shape[-2]
    dtype, lead = v.dtype, torch.broadcast_shapes(beta.shape, v.shape[:-2])
    if mask is None:
        mask = torch.ones(n, dtype=torch.bool, device=q.device)
    k = k * mask[..., None]
    age = mask.long().cumsum(-1).expand(*lead, n)
    steps = (age[..., :, None] - age[..., None, :] + 1).clamp(min=0)

    sums = (gamma[..., None] * geometric_sums(beta, n)).to(dtype).expand(*lead, n + 1)
    decay = powers(beta, n + 1).to(dtype).expand(*lead, n + 1)
    carried = beta[..., None].to(dtype) * sums

    scores = q @ k.transpose(-1, -2)
    weight = sums.gather(-1, steps.flatten(-2)).reshape(scores.shape)
    from_m = carried.gather(-1, age)
    numerator = (weight * scores) @ v + q @ state.s + from_m[..., None] * (q @ state.m)
    denominator = (scores * (steps > 0)).sum(-1) + (q @ state.z[..., None]).squeeze(-1)
    if n == 0:
        return numerator, denominator, state

    last = age[..., -1:]
    key_weight_m = decay.gather(-1, (last - age).clamp(min=0))
    final = MomentumState(
        m=decay.gather(-1, last)[..., None] * state.m + (key_weight_m[..., None] * k).transpose(-1, -2) @ v,
        s=state.s + from_m[..., -1:, None] * state.m + (weight[..., -1, :, None] * k).transpose(-1, -2) @ v,
        z=state.z + k.sum(-2),
    )
    return numerator, denominator, final
