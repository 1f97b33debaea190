"""Momentum attention as one n × n matrix: the paper's closed form, written out (eq. 13).

A reference for reading and testing, in quadratic time and memory.
"""

import torch

from .geometric import geometric_sums, powers
from .recurrent import Attended
from .shapes import Bool, Float, Tensor
from .state import RecurrentState


def momentum_quadratic(
    q: Float[Tensor, "*b n d"],
    k: Float[Tensor, "*b n d"],
    v: Float[Tensor, "*b n e"],
    state: RecurrentState,
    *,
    beta: Float[Tensor, "*h"],
    gamma: Float[Tensor, "*h"],
    mask: Bool[Tensor, "*#b n"] | None = None,
) -> Attended:
    """Eq. 13, for n > 0; without an m in the state β must be 0 (eq. 7). q, k are features.

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
    s, m, z = state
    numerator = (weight * scores) @ v + q @ s
    s = s + (weight[..., -1, :, None] * k).transpose(-1, -2) @ v
    if m is not None:
        numerator = numerator + from_m[..., None] * (q @ m)
        s = s + from_m[..., -1:, None] * m
        last = age[..., -1:]
        key_weight_m = decay.gather(-1, (last - age).clamp(min=0))
        m = decay.gather(-1, last)[..., None] * m + (key_weight_m[..., None] * k).transpose(-1, -2) @ v
    if z is None:
        return Attended(numerator, None, RecurrentState(s, m, None))
    denominator = (scores * (steps > 0)).sum(-1) + (q @ z[..., None]).squeeze(-1)
    return Attended(numerator, denominator, RecurrentState(s, m, z + k.sum(-2)))
