"""How much of each token's update is in s and m at each later token: weights of pairs, without quotients.

Products of many decays underflow, and quotients of them are lost with them. So a block of tokens is put together from
its two halves, from single tokens on: every weight is a sum of products of coefficients, and nothing is divided.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 (the field's name for it)

from .coefficients import Coefficients
from .shapes import Float, Tensor


class PairWeights(NamedTuple):
    """What c tokens do: s_i and m_i are the state after token i, s_0 and m_0 before the first one.

    The last axis has size 1, or d where each channel of s decays by itself.
    """

    s_of_u: Float[Tensor, "*b c c x"]  # of k_j u_jᵀ in s_i; zero for j > i
    s_of_s: Float[Tensor, "*b c x"] | None  # of s_0 in s_i; None: 1
    s_of_m: Float[Tensor, "*b c x"] | None = None  # of m_0 in s_i; None: there is no m
    m_of_u: Float[Tensor, "*b c c 1"] | None = None
    m_of_m: Float[Tensor, "*b c 1"] | None = None

    def map(self, pairs: Callable[[Tensor], Tensor], vectors: Callable[[Tensor], Tensor]) -> "PairWeights":
        """One function of the weights of pairs, another of those of the state before."""
        s_of_u, s_of_s, s_of_m, m_of_u, m_of_m = self
        return PairWeights(
            pairs(s_of_u),
            None if s_of_s is None else vectors(s_of_s),
            None if s_of_m is None else vectors(s_of_m),
            None if m_of_u is None else pairs(m_of_u),
            None if m_of_m is None else vectors(m_of_m),
        )

    def to(self, dtype: torch.dtype) -> "PairWeights":
        return self.map(lambda x: x.to(dtype), lambda x: x.to(dtype))

    def before(self) -> "PairWeights":
        """The same for the state before token i instead of after it."""
        return PairWeights(
            _delayed(self.s_of_u, -3, 0.0),
            None if self.s_of_s is None else _delayed(self.s_of_s, -2, 1.0),
            None if self.s_of_m is None else _delayed(self.s_of_m, -2, 0.0),
            None if self.m_of_u is None else _delayed(self.m_of_u, -3, 0.0),
            None if self.m_of_m is None else _delayed(self.m_of_m, -2, 1.0),
        )


def _delayed(x: Tensor, axis: int, first: float) -> Tensor:
    """Row i becomes row i + 1; the first one is new, the last one is gone."""
    new = torch.full_like(x.narrow(axis, 0, 1), first)
    return torch.cat([new, x.narrow(axis, 0, x.shape[axis] - 1)], axis)


def pair_weights(c: Coefficients, length: int, *, like: Tensor) -> PairWeights:
    """The weights of `length` tokens with these coefficients, broadcast; in the widest dtype among them."""
    alpha, beta, gamma = c.alpha, *(None if x is None else x[..., None] for x in (c.beta, c.gamma))
    if alpha is None and beta is None:  # every earlier update counts alike
        lower = like.new_ones(length, length).tril()[..., None]
        return PairWeights(lower if gamma is None else lower * gamma.transpose(-1, -2)[..., None], None)
    given = [x for x in (alpha, beta, gamma) if x is not None]
    lead = torch.broadcast_shapes(*(x.shape[:-2] for x in given))
    one = like.new_ones(1, 1)

    def blocks(x: Tensor, beyond: float) -> Tensor:
        """Padded with neutral tokens to a power of two, one token a block."""
        size = 1 << (length - 1).bit_length()
        whole = x.expand(*lead, length, x.shape[-1])
        return F.pad(whole, (0, 0, 0, size - length), value=beyond).unsqueeze(-2)

    s_of_s = blocks(one if alpha is None else alpha, 1.0)
    s_of_u = blocks(one if gamma is None else gamma, 0.0).expand_as(s_of_s)
    weights = PairWeights(s_of_u.unsqueeze(-2), s_of_s)
    if beta is not None:
        m_of_m = blocks(beta, 1.0)
        weights = PairWeights(*weights[:2], s_of_u * m_of_m, torch.ones_like(m_of_m).unsqueeze(-2), m_of_m)
    while weights.s_of_u.shape[-4] > 1:
        weights = _joined(weights)
    weights = weights.map(lambda x: x.squeeze(-4)[..., :length, :length, :], lambda x: x.squeeze(-3)[..., :length, :])
    return weights._replace(s_of_s=None) if alpha is None else weights


def _joined(w: PairWeights) -> PairWeights:
    """Merge pairs of neighbouring blocks: the second goes on from the state after the first."""
    one = w.map(lambda x: x[..., 0::2, :, :, :], lambda x: x[..., 0::2, :, :])
    two = w.map(lambda x: x[..., 1::2, :, :, :], lambda x: x[..., 1::2, :, :])
    assert one.s_of_s is not None
    assert two.s_of_s is not None
    # weights of the first block's updates in s, carried on through the second block
    crossing = two.s_of_s.unsqueeze(-2) * one.s_of_u[..., -1:, :, :]
    s_of_s = _side_by_side(one.s_of_s, two.s_of_s * one.s_of_s[..., -1:, :])
    if one.s_of_m is None or one.m_of_u is None or one.m_of_m is None:
        return PairWeights(_corners(one.s_of_u, crossing, two.s_of_u), s_of_s)
    assert two.s_of_m is not None
    assert two.m_of_u is not None
    assert two.m_of_m is not None
    left, s_left, m_left = one.m_of_u[..., -1:, :, :], one.s_of_m[..., -1:, :], one.m_of_m[..., -1:, :]
    return PairWeights(
        _corners(one.s_of_u, crossing + two.s_of_m.unsqueeze(-2) * left, two.s_of_u),
        s_of_s,
        _side_by_side(one.s_of_m, two.s_of_s * s_left + two.s_of_m * m_left),
        _corners(one.m_of_u, two.m_of_m.unsqueeze(-2) * left, two.m_of_u),
        _side_by_side(one.m_of_m, two.m_of_m * m_left),
    )


def _side_by_side(first: Tensor, second: Tensor) -> Tensor:
    return torch.cat([first, second], -2)


def _corners(first: Tensor, crossing: Tensor, second: Tensor) -> Tensor:
    """[[first, 0], [crossing, second]] over the axes of queries and keys."""
    size = first.shape[-2]
    above = F.pad(first, (0, 0, 0, size))
    return torch.cat([above, torch.cat([crossing, second], -2)], -3)
