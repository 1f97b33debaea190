"""Momentum attention token by token: the paper's recurrence, read aloud (eq. 12).

The reference that every other form is tested against, and the form that decoding uses.
"""

import torch

from .shapes import Bool, Float, Tensor
from .state import LinearState, MomentumState


def momentum_step(
    q: Float[Tensor, "*b d"],
    k: Float[Tensor, "*b d"],
    v: Float[Tensor, "*b e"],
    state: MomentumState,
    *,
    beta: Float[Tensor, "*h"],
    gamma: Float[Tensor, "*h"],
) -> tuple[Float[Tensor, "*b e"], Float[Tensor, "*b"], MomentumState]:
    """One token of eq. 12: numerator φ(q)ᵀs, denominator φ(q)ᵀz, and the state after it. q, k are features."""
    beta, gamma = beta[..., None, None].to(v.dtype), gamma[..., None, None].to(v.dtype)
    m = beta * state.m + k[..., :, None] * v[..., None, :]
    s = state.s + gamma * m
    z = state.z + k
    return (q[..., None, :] @ s).squeeze(-2), (q * z).sum(-1), MomentumState(m, s, z)


def linear_step(
    q: Float[Tensor, "*b d"], k: Float[Tensor, "*b d"], v: Float[Tensor, "*b e"], state: LinearState
) -> tuple[Float[Tensor, "*b e"], Float[Tensor, "*b"], LinearState]:
    """One token of linear attention (eq. 8)."""
    s = state.s + k[..., :, None] * v[..., None, :]
    z = state.z + k
    return (q[..., None, :] @ s).squeeze(-2), (q * z).sum(-1), LinearState(s, z)


def momentum_recurrent(
    q: Float[Tensor, "*b n d"],
    k: Float[Tensor, "*b n d"],
    v: Float[Tensor, "*b n e"],
    state: MomentumState,
    *,
    beta: Float[Tensor, "*h"],
    gamma: Float[Tensor, "*h"],
    mask: Bool[Tensor, "*#b n"] | None = None,
) -> tuple[Float[Tensor, "*b n e"], Float[Tensor, "*b n"], MomentumState]:
    """`momentum_step` for each token in turn; a masked token leaves the state as it was."""
    numerators, denominators = [v.new_zeros(*v.shape[:-2], 0, v.shape[-1])], [v.new_zeros(*v.shape[:-2], 0)]
    for i in range(q.shape[-2]):
        numerator, denominator, after = momentum_step(
            q[..., i, :], k[..., i, :], v[..., i, :], state, beta=beta, gamma=gamma
        )
        if mask is None:
            state = after
        else:
            real = mask[..., i, None, None]
            state = MomentumState(
                m=torch.where(real, after.m, state.m),
                s=torch.where(real, after.s, state.s),
                z=torch.where(real[..., 0], after.z, state.z),
            )
        numerators.append(numerator.unsqueeze(-2))
        denominators.append(denominator.unsqueeze(-1))
    return torch.cat(numerators, -2), torch.cat(denominators, -1), state
