"""A masked token does not exist: take the masked tokens out, attend, put the outputs back.

The chunked form works on sequences without holes. `compact` moves the real tokens of each sample to the front;
what follows them is causally harmless, except for the final state, which `momentum_state_after` and
`linear_state_after` compute at each sample's true length.
"""

import torch

from .geometric import geometric_sums, powers
from .shapes import Bool, Float, Int, Tensor
from .state import LinearState, MomentumState


def compact(mask: Bool[Tensor, "*#b n"], *tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors (..., n, d) with the real tokens first, in their order."""
    order = torch.argsort(~mask, dim=-1, stable=True)[..., None]
    return tuple(tensor.gather(-2, order.expand(tensor.shape)) for tensor in tensors)


def spread(mask: Bool[Tensor, "*#b n"], x: Float[Tensor, "*b n e"]) -> Float[Tensor, "*b n e"]:
    """The inverse of `compact`, for the real tokens; what stands at the masked ones has no meaning."""
    place = (mask.long().cumsum(-1) - 1).clamp(min=0)[..., None]
    return x.gather(-2, place.expand(x.shape))


def momentum_state_after(
    length: Int[Tensor, "*#b"],
    k: Float[Tensor, "*b n d"],
    v: Float[Tensor, "*b n e"],
    state: MomentumState,
    *,
    beta: Float[Tensor, "*h"],
    gamma: Float[Tensor, "*h"],
) -> MomentumState:
    """Unrolled eq. 12: m and s after the first `length` tokens of each sample, as one weighted sum."""
    n, lead = k.shape[-2], k.shape[:-2]
    length = length.expand(lead)
    ahead = length[..., None] - torch.arange(1, n + 1, device=k.device)  # real tokens after this one
    real = ahead >= 0
    sums = (gamma[..., None] * geometric_sums(beta, n)).to(v.dtype).expand(*lead, n + 1)
    decay = powers(beta, n + 1).to(v.dtype).expand(*lead, n + 1)
    k_m = k * (decay.gather(-1, ahead.clamp(min=0)) * real)[..., None]
    k_s = k * (sums.gather(-1, (ahead + 1).clamp(min=0)))[..., None]
    at_end = length[..., None]
    carried = beta[..., None].to(v.dtype) * sums.gather(-1, at_end)
    return MomentumState(
        m=decay.gather(-1, at_end)[..., None] * state.m + k_m.transpose(-1, -2) @ v,
        s=state.s + carried[..., None] * state.m + k_s.transpose(-1, -2) @ v,
        z=state.z + (k * real[..., None]).sum(-2),
    )


def linear_state_after(
    length: Int[Tensor, "*#b"], k: Float[Tensor, "*b n d"], v: Float[Tensor, "*b n e"], state: LinearState
) -> LinearState:
    """Eq. 8 summed: s and z after the first `length` tokens of each sample."""
    real = torch.arange(k.shape[-2], device=k.device) < length[..., None]
    k = k * real[..., None]
    return LinearState(s=state.s + k.transpose(-1, -2) @ v, z=state.z + k.sum(-2))
