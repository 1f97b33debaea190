"""Attention token by token: the paper's recurrences, read aloud (eq. 8 and 12).

The reference that every other form is tested against, and the form that decoding uses.
"""

from collections.abc import Callable
from typing import Any

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
    # Deviation: m has the sign of the updates, where the paper subtracts twice.
    # βm is written m - (1 - β)m, because near 1 a rounded β would lose most digits of 1 - β.
    fading, gamma = (1 - beta)[..., None, None].to(v.dtype), gamma[..., None, None].to(v.dtype)
    m = state.m - fading * state.m + k[..., :, None] * v[..., None, :]
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


def token_by_token(
    step: Callable[[Tensor, Tensor, Tensor, Any], tuple[Tensor, Tensor, Any]],
    q: Float[Tensor, "*b n d"],
    k: Float[Tensor, "*b n d"],
    v: Float[Tensor, "*b n e"],
    state: Any,
    mask: Bool[Tensor, "*#b n"] | None = None,
) -> tuple[Float[Tensor, "*b n e"], Float[Tensor, "*b n"], Any]:
    """`step` for each token in turn; a masked token leaves the state as it was."""
    numerators, denominators = [], []
    for i in range(q.shape[-2]):
        numerator, denominator, after = step(q[..., i, :], k[..., i, :], v[..., i, :], state)
        if mask is None:
            state = after
        else:
            real = mask[..., i, None]
            state = type(state)(
                *(
                    torch.where(real if name == "z" else real[..., None], new, old)
                    for name, new, old in zip(state._fields, after, state, strict=True)
                )
            )
        numerators.append(numerator)
        denominators.append(denominator)
    return torch.stack(numerators, -2), torch.stack(denominators, -1), state
