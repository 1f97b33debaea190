"""Causal attention in linear time: quadratic inside a chunk, recurrent from chunk to chunk.

Any recurrence with scalar coefficients, x ← T x + b φ(k)vᵀ with output φ(q)ᵀ x[0], is one `ChunkWeights`. The
state x stacks r matrices ("lanes"): linear attention has one (s), momentum attention two (s and m).

The backward pass is written out. It stores nothing from the forward pass but the inputs, recomputes the states
at chunk borders, and is differentiable in turn.
"""

from typing import Any, NamedTuple

import torch

from .geometric import geometric_sums, powers
from .masking import compact, linear_state_after, momentum_state_after, spread
from .shapes import Bool, Float, Tensor
from .state import LinearState, MomentumState


class ChunkWeights(NamedTuple):
    """What a chunk of `c` tokens does to its state of `r` lanes, as plain numbers."""

    pair: Float[Tensor, "*h c c"]  # of key j in the output of query i; zero for j > i
    read: Float[Tensor, "*h c r"]  # of each lane at the start in the output of query i
    write: Float[Tensor, "*h c r"]  # of key j in each lane at the end
    carry: Float[Tensor, "*h r r"]  # of each lane at the start (last axis) in each lane at the end


def momentum_chunked(
    q: Float[Tensor, "*b n d"],
    k: Float[Tensor, "*b n d"],
    v: Float[Tensor, "*b n e"],
    state: MomentumState,
    *,
    beta: Float[Tensor, "*h"],
    gamma: Float[Tensor, "*h"],
    mask: Bool[Tensor, "*#b n"] | None = None,
    chunk_size: int,
) -> tuple[Float[Tensor, "*b n e"], Float[Tensor, "*b n"], MomentumState]:
    """Eq. 12 and eq. 13 at once: numerator, denominator and final state in linear time. q, k are features."""
    if q.shape[-2] == 0:
        return v, q.sum(-1), state
    if mask is not None:
        q, k, v = compact(mask, q, k, v)
    size, rest = _sizes(q, chunk_size)
    numerator, denominator, lanes, z = chunked_scan(
        q,
        k,
        v,
        torch.stack([state.s, state.m], -3),
        state.z,
        momentum_weights(beta, gamma, size, like=v),
        momentum_weights(beta, gamma, rest, like=v),
    )
    if mask is None:
        return numerator, denominator, MomentumState(m=lanes[..., 1, :, :], s=lanes[..., 0, :, :], z=z)
    final = momentum_state_after(mask.sum(-1), k, v, state, beta=beta, gamma=gamma)
    return spread(mask, numerator), spread(mask, denominator[..., None]).squeeze(-1), final


def linear_chunked(
    q: Float[Tensor, "*b n d"],
    k: Float[Tensor, "*b n d"],
    v: Float[Tensor, "*b n e"],
    state: LinearState,
    *,
    mask: Bool[Tensor, "*#b n"] | None = None,
    chunk_size: int,
) -> tuple[Float[Tensor, "*b n e"], Float[Tensor, "*b n"], LinearState]:
    """Eq. 7 and eq. 8 at once: the same for linear attention, which needs no m."""
    if q.shape[-2] == 0:
        return v, q.sum(-1), state
    if mask is not None:
        q, k, v = compact(mask, q, k, v)
    size, rest = _sizes(q, chunk_size)
    full, last = linear_weights(size, like=v), linear_weights(rest, like=v)
    numerator, denominator, lanes, z = chunked_scan(q, k, v, state.s[..., None, :, :], state.z, full, last)
    if mask is None:
        return numerator, denominator, LinearState(s=lanes.squeeze(-3), z=z)
    final = linear_state_after(mask.sum(-1), k, v, state)
    return spread(mask, numerator), spread(mask, denominator[..., None]).squeeze(-1), final


def _sizes(q: Tensor, chunk_size: int) -> tuple[int, int]:
    size = min(chunk_size, q.shape[-2])
    return size, q.shape[-2] % size


def linear_weights(length: int, *, like: Tensor) -> ChunkWeights:
    """Linear attention (eq. 7): every earlier token counts one."""
    ones = torch.ones(length, length, dtype=like.dtype, device=like.device)
    return ChunkWeights(ones.tril(), ones[:, :1], ones[:, :1], ones.new_ones(1, 1))


def momentum_weights(
    beta: Float[Tensor, "*h"], gamma: Float[Tensor, "*h"], length: int, *, like: Tensor
) -> ChunkWeights:
    """Momentum attention (eq. 13): γ(1 + β + … + βⁱ⁻ʲ), lanes (s, m)."""
    sums = gamma[..., None] * geometric_sums(beta, length)
    decay = powers(beta, length + 1)
    carried = beta[..., None] * sums  # m adds βm to s one token later, β²m after two, …
    i = torch.arange(length, device=beta.device)
    one, zero = torch.ones_like(beta), torch.zeros_like(beta)
    weights = ChunkWeights(
        pair=sums[..., (i[:, None] - i[None, :] + 1).clamp(min=0)],
        read=torch.stack([torch.ones_like(carried[..., 1:]), carried[..., 1:]], -1),
        write=torch.stack([sums[..., 1:], decay[..., :-1]], -1).flip(-2),
        carry=torch.stack([torch.stack([one, carried[..., -1]], -1), torch.stack([zero, decay[..., -1]], -1)], -2),
    )
    return ChunkWeights(*(weight.to(like.dtype) for weight in weights))


def chunked_scan(
    q: Float[Tensor, "*b n d"],
    k: Float[Tensor, "*b n d"],
    v: Float[Tensor, "*b n e"],
    lanes: Float[Tensor, "*b r d e"],
    z: Float[Tensor, "*b d"],
    full: ChunkWeights,
    last: ChunkWeights,
) -> tuple[Float[Tensor, "*b n e"], Float[Tensor, "*b n"], Float[Tensor, "*b r d e"], Float[Tensor, "*b d"]]:
    """Numerator, denominator, and the state after the last token. q, k are features.

    `full` are the weights of a whole chunk, `last` those of the n mod c tokens that remain.
    """
    return _ChunkedScan.apply(q, k, v, lanes, z, *full, *last)


class _ChunkedScan(torch.autograd.Function):
    @staticmethod
    def forward(
        q: Tensor, k: Tensor, v: Tensor, lanes: Tensor, z: Tensor, *weights: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        numerators, denominators = _Pieces(v), _Pieces(q.new_empty(*q.shape[:-1], 1))
        for (q_c, k_c, v_c), w in _chunks((q, k, v), weights):
            numerator, denominator = _outputs(q_c, k_c, v_c, lanes, z, w)
            lanes, z = _advance(k_c, v_c, lanes, z, w)
            numerators.append(numerator)
            denominators.append(denominator)
        return numerators.joined(), denominators.joined().squeeze(-1), lanes, z

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(
        ctx: Any, d_numerator: Tensor, d_denominator: Tensor, d_lanes: Tensor, d_z: Tensor
    ) -> tuple[Tensor | None, ...]:
        q, k, v, lanes, z, *weights = ctx.saved_tensors
        learned = any(ctx.needs_input_grad[5:])
        states = []
        for (k_c, v_c), w in _chunks((k, v), weights):
            states.append((lanes, z))
            lanes, z = _advance(k_c, v_c, lanes, z, w)

        d_q, d_k, d_v = (_Pieces(x, backwards=True) for x in (q, k, v))
        d_weights: list[Tensor | None] = [None] * len(weights)
        chunks = _chunks((q, k, v, d_numerator, d_denominator[..., None]), weights)
        for (q_c, k_c, v_c, d_num, d_den), w in reversed(chunks):
            lanes, z = states.pop()
            scores = q_c @ k_c.transpose(-1, -2)
            d_weighted = d_num @ v_c.transpose(-1, -2)
            d_scores = (d_weighted * w.pair + d_den).tril()
            d_read = torch.einsum("...ce,...rde->...crd", d_num, lanes)
            d_write = torch.einsum("...ce,...rde->...crd", v_c, d_lanes)
            d_q.append(d_scores @ k_c + _weigh(w.read, d_read) + d_den * z[..., None, :])
            d_k.append(d_scores.transpose(-1, -2) @ q_c + _weigh(w.write, d_write) + d_z[..., None, :])
            d_v.append(
                (scores * w.pair).transpose(-1, -2) @ d_num
                + torch.einsum("...cr,...cd,...rde->...ce", w.write, k_c, d_lanes)
            )
            if learned:
                d_chunk = (
                    d_weighted * scores,
                    (d_read * q_c[..., None, :]).sum(-1),
                    (d_write * k_c[..., None, :]).sum(-1),
                    torch.einsum("...rde,...sde->...rs", d_lanes, lanes),
                )
                offset = 0 if w.read is weights[1] else len(w)
                for i, (grad, weight) in enumerate(zip(d_chunk, w, strict=True), start=offset):
                    total = d_weights[i]
                    grad = grad.sum_to_size(weight.shape)
                    d_weights[i] = grad if total is None else total + grad
            d_lanes = torch.einsum("...rs,...rde->...sde", w.carry, d_lanes) + torch.einsum(
                "...cr,...cd,...ce->...rde", w.read, q_c, d_num
            )
            d_z = d_z + (d_den * q_c).sum(-2)
        return d_q.joined(), d_k.joined(), d_v.joined(), d_lanes, d_z, *d_weights


def _chunks(
    tensors: tuple[Tensor, ...], weights: tuple[Tensor, ...] | list[Tensor]
) -> list[tuple[tuple[Tensor, ...], ChunkWeights]]:
    full, last = ChunkWeights(*weights[:4]), ChunkWeights(*weights[4:])
    size = full.read.shape[-2]
    pieces = zip(*(tensor.split(size, -2) for tensor in tensors), strict=True)
    return [(piece, full if piece[0].shape[-2] == size else last) for piece in pieces]


def _outputs(q: Tensor, k: Tensor, v: Tensor, lanes: Tensor, z: Tensor, w: ChunkWeights) -> tuple[Tensor, Tensor]:
    scores = q @ k.transpose(-1, -2)
    numerator = (scores * w.pair) @ v + torch.einsum("...cr,...cd,...rde->...ce", w.read, q, lanes)
    denominator = scores.tril().sum(-1, keepdim=True) + q @ z[..., None]
    return numerator, denominator


def _advance(k: Tensor, v: Tensor, lanes: Tensor, z: Tensor, w: ChunkWeights) -> tuple[Tensor, Tensor]:
    lanes = torch.einsum("...rs,...sde->...rde", w.carry, lanes) + torch.einsum(
        "...cr,...cd,...ce->...rde", w.write, k, v
    )
    return lanes, z + k.sum(-2)


def _weigh(weight: Tensor, x: Tensor) -> Tensor:
    return torch.einsum("...cr,...crd->...cd", weight, x)


class _Pieces:
    """The chunks of a result. Written straight into place, or joined at the end where a graph of them is needed."""

    def __init__(self, like: Tensor, *, backwards: bool = False) -> None:
        self.backwards = backwards
        self.pieces: list[Tensor] = []
        self.whole: Tensor | None = None
        if not (torch.is_grad_enabled() or torch.compiler.is_compiling()):
            self.whole = torch.empty_like(like)
            self.left = self.whole

    def append(self, piece: Tensor) -> None:
        if self.whole is None:
            self.pieces.append(piece)
            return
        length, rest = piece.shape[-2], self.left.shape[-2] - piece.shape[-2]
        self.left.narrow(-2, rest if self.backwards else 0, length).copy_(piece)
        self.left = self.left.narrow(-2, 0 if self.backwards else length, rest)

    def joined(self) -> Tensor:
        if self.whole is None:
            return torch.cat(self.pieces[::-1] if self.backwards else self.pieces, -2)
        return self.whole
