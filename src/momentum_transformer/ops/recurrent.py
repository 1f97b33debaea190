"""Attention token by token: the recurrence of the family, read aloud (eq. 8 and 12 are members).

The reference that every other form is tested against.
"""

from typing import NamedTuple

import torch

from .coefficients import Coefficients, faded
from .shapes import Bool, Float, Tensor
from .state import RecurrentState, map_state


class Attended(NamedTuple):
    """What the causal forms return: y is the numerator, divided by the denominator where there is one."""

    numerator: Tensor
    denominator: Tensor | None
    state: RecurrentState


def step(
    q: Float[Tensor, "*b d"],
    k: Float[Tensor, "*b d"],
    v: Float[Tensor, "*b e"],
    erase: Float[Tensor, "*b d"] | None,
    c: Coefficients,
    state: RecurrentState,
) -> Attended:
    """One token: sᵀq, zᵀq, and the state after it. q, k are features; `c` is broadcast over this one token."""
    # Deviation: m has the sign of the updates, where the paper subtracts twice.
    alpha, beta, gamma, eta, delta, lookahead = c
    s, m, z = state
    u = v
    if delta is not None:
        predicts = s if lookahead is None or m is None else s + lookahead[..., None].to(s.dtype) * m
        p = k if erase is None else erase
        u = u - delta.to(v.dtype) * (p[..., None, :] @ predicts).squeeze(-2)
    if eta is not None:
        u = eta.to(v.dtype) * u
    update = k[..., :, None] * u[..., None, :]
    if m is not None and beta is not None:
        m = faded(m, beta[..., None]) + update
        update = m
    if gamma is not None:
        update = gamma[..., None].to(v.dtype) * update
    s = update + (s if alpha is None else faded(s, alpha.transpose(-1, -2)))
    if z is not None:
        z = z + k
    return _read(q, RecurrentState(s, m, z))


def _read(q: Tensor, state: RecurrentState) -> Attended:
    numerator = (q[..., None, :] @ state.s).squeeze(-2)
    return Attended(numerator, None if state.z is None else (q * state.z).sum(-1), state)


def token_by_token(
    q: Float[Tensor, "*b n d"],
    k: Float[Tensor, "*b n d"],
    v: Float[Tensor, "*b n e"],
    erase: Float[Tensor, "*b n d"] | None,
    c: Coefficients,
    state: RecurrentState,
    *,
    mask: Bool[Tensor, "*#b n"] | None = None,
    reset: Bool[Tensor, "*#b n"] | None = None,
) -> Attended:
    """`step` for each token in turn; at a reset the state is nothing, and a masked token leaves it as it was."""
    numerators, denominators = [], []
    for i in range(q.shape[-2]):
        if reset is not None:
            state = _where(reset[..., i], map_state(torch.zeros_like, state), state)
        of_token = None if erase is None else erase[..., i, :]
        read = step(q[..., i, :], k[..., i, :], v[..., i, :], of_token, c.tokens(i, i + 1), state)
        if mask is not None:
            read = _read(q[..., i, :], _where(mask[..., i], read.state, state))
        state = read.state
        numerators.append(read.numerator)
        denominators.append(read.denominator)
    denominator = None if state.z is None else torch.stack([x for x in denominators if x is not None], -1)
    return Attended(torch.stack(numerators, -2), denominator, state)


def _where(condition: Tensor, yes: RecurrentState, no: RecurrentState) -> RecurrentState:
    """Sample by sample one or the other, of two states with the same parts."""

    def choose(a: Tensor | None, b: Tensor | None, axes: int) -> Tensor | None:
        if a is None or b is None:
            return None
        return torch.where(condition.reshape(*condition.shape, *[1] * axes), a, b)

    s = torch.where(condition[..., None, None], yes.s, no.s)
    return RecurrentState(s, choose(yes.m, no.m, 2), choose(yes.z, no.z, 1))
