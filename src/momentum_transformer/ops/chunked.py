"""Causal attention in linear time: quadratic inside a chunk, recurrent from chunk to chunk; any member of the family.

Inside a chunk, a prediction sees earlier updates of the same chunk, so that the updates u solve one triangular system
(docs/derivations.md). Members that erase nothing need none. Where their matrices would take much memory, chunks are
computed again in the backward pass: what is kept of the forward pass are the inputs and the states between chunks.
"""

from typing import NamedTuple

import torch
from torch.utils.checkpoint import checkpoint

from .coefficients import Coefficients, faded
from .feature_maps import elu_plus_one
from .pair_weights import PairWeights, pair_weights
from .recurrent import Attended
from .shapes import Float, Tensor
from .state import RecurrentState
from .tracing import transformed

KEPT_MATRICES = 4  # of size × size that autograd keeps of a chunk, about
MOST_KEPT = 2**27  # bytes; beyond, chunks are computed again in the backward pass


class Chunk(NamedTuple):
    """Some tokens of a sequence, with the weights of their pairs where they are known beforehand."""

    q: Tensor
    k: Tensor
    v: Tensor
    erase: Tensor | None
    documents: Tensor | None  # (..., c) how many documents have begun since before the chunk
    c: Coefficients
    weights: PairWeights | None
    elu: bool  # q and k are what elu + 1 makes features of


def chunked_scan(
    q: Float[Tensor, "*b n d"],
    k: Float[Tensor, "*b n d"],
    v: Float[Tensor, "*b n e"],
    erase: Float[Tensor, "*b n d"] | None,
    c: Coefficients,
    state: RecurrentState,
    *,
    size: int,
    reset: Tensor | None = None,
    elu: bool = False,
) -> Attended:
    """The form by chunks of `size` tokens, for n > 0.

    c is already broadcast and includes masks and resets; `reset` affects only the denominator; with `elu`, q and k
    are not mapped yet.
    """
    n = q.shape[-2]
    weights = {}
    if c.constant:
        weights = {length: pair_weights(c, length, like=v) for length in {min(size, n), n % size} - {0}}
    recompute = torch.is_grad_enabled() and n > size and not (torch.compiler.is_compiling() or transformed())
    recompute = recompute and KEPT_MATRICES * q.numel() // q.shape[-1] * size * q.element_size() > MOST_KEPT
    numerators, denominators = [], []
    for start in range(0, n, size):
        stop = min(start + size, n)
        chunk = Chunk(
            q[..., start:stop, :],
            k[..., start:stop, :],
            v[..., start:stop, :],
            None if erase is None else erase[..., start:stop, :],
            None if reset is None else reset[..., start:stop].cumsum(-1),
            c.tokens(start, stop),
            weights.get(stop - start),
            elu,
        )
        if recompute:
            read = checkpoint(_run, chunk, state, use_reentrant=False, preserve_rng_state=False)
        else:
            read = _run(chunk, state)
        state = read.state
        numerators.append(read.numerator)
        denominators.append(read.denominator)
    if len(numerators) == 1:
        return read
    joined = None if state.z is None else torch.cat([x for x in denominators if x is not None], -1)
    return Attended(torch.cat(numerators, -2), joined, state)


def _run(x: Chunk, state: RecurrentState) -> Attended:
    q, k = (elu_plus_one(x.q), elu_plus_one(x.k)) if x.elu else (x.q, x.k)
    exact = pair_weights(x.c, q.shape[-2], like=x.v) if x.weights is None else x.weights
    w, (s, m, z) = exact.to(x.v.dtype), state
    u = _updates(k, x.v, k if x.erase is None else x.erase, x.c, w, state)
    scores = q @ k.transpose(-1, -2)
    numerator = _weighed(q, k, w.s_of_u, scores) @ u + (q if w.s_of_s is None else q * w.s_of_s) @ s
    s_after = s if exact.s_of_s is None else faded(s, exact.s_of_s[..., -1, :, None])
    s_after = s_after + (k * w.s_of_u[..., -1, :, :]).transpose(-1, -2) @ u
    m_after = None
    if m is not None and w.s_of_m is not None and w.m_of_u is not None and exact.m_of_m is not None:
        numerator = numerator + (q * w.s_of_m) @ m
        s_after = s_after + w.s_of_m[..., -1, :, None] * m
        m_after = faded(m, exact.m_of_m[..., -1, :, None]) + (k * w.m_of_u[..., -1, :, :]).transpose(-1, -2) @ u
    if z is None:
        return Attended(numerator, None, RecurrentState(s_after, m_after, None))
    denominator, z_after = _denominator(q, k, z, scores, x.documents)
    return Attended(numerator, denominator, RecurrentState(s_after, m_after, z_after))


def _updates(k: Tensor, v: Tensor, p: Tensor, c: Coefficients, w: PairWeights, state: RecurrentState) -> Tensor:
    """u_i = η_i (v_i - δ_i p_iᵀ(s_{i-1} + ρ_i m_{i-1})) for all tokens of a chunk at once."""
    s, m, _ = state
    eta, delta, rho = (None if x is None else x[..., None].to(v.dtype) for x in (c.eta, c.delta, c.lookahead))
    u = v if eta is None else eta * v
    if delta is None:
        return u
    strength = delta if eta is None else eta * delta
    earlier = w.before()
    pairs, seen = earlier.s_of_u, (p if earlier.s_of_s is None else p * earlier.s_of_s) @ s
    if m is not None and earlier.s_of_m is not None and earlier.m_of_u is not None and earlier.m_of_m is not None:
        of_m = earlier.s_of_m
        if rho is not None:
            of_m = of_m + rho * earlier.m_of_m
            pairs = pairs + rho[..., None] * earlier.m_of_u
        seen = seen + (p * of_m) @ m
    system = strength * _weighed(p, k, pairs, None)
    return torch.linalg.solve_triangular(system, u - strength * seen, upper=False, unitriangular=True)


def _weighed(q: Tensor, k: Tensor, pairs: Tensor, scores: Tensor | None) -> Tensor:
    """Σ_d q_id k_jd pairs_ijd; `scores` are the products q_i·k_j, where they are there already."""
    if pairs.shape[-1] > 1:
        return torch.einsum("...id,...ijd,...jd->...ij", q, pairs, k)
    return (q @ k.transpose(-1, -2) if scores is None else scores) * pairs.squeeze(-1)


def _denominator(q: Tensor, k: Tensor, z: Tensor, scores: Tensor, documents: Tensor | None) -> tuple[Tensor, Tensor]:
    """q_iᵀz_i for each token of a chunk, and z after the last one."""
    before = (q @ z[..., None]).squeeze(-1)
    if documents is None:
        return scores.tril().sum(-1) + before, z + k.sum(-2)
    same = torch.where(documents[..., :, None] == documents[..., None, :], scores.tril(), 0).sum(-1)
    last = documents[..., -1:]
    z_after = torch.where(last == 0, z, 0) + torch.where((documents == last)[..., None], k, 0).sum(-2)
    return same + torch.where(documents == 0, before, 0), z_after
