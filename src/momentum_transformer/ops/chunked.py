"""Causal attention in linear time: quadratic inside a chunk, recurrent from chunk to chunk.

Any recurrence with scalar coefficients, x ← T x + b φ(k)vᵀ with output φ(q)ᵀ x[0], is one `ChunkWeights`. The
state x stacks r matrices ("lanes"): linear attention has one (s), momentum attention two (s and m).

The backward pass is written out. It stores nothing from the forward pass but the inputs, recomputes the states
at chunk borders, and is differentiable in turn.
"""

from typing import Any, NamedTuple

import torch

from .feature_maps import elu_plus_one
from .geometric import geometric_sums, powers
from .precision import full_precision
from .shapes import Float, Tensor


class ChunkWeights(NamedTuple):
    """What a chunk of `c` tokens does to its state of `r` lanes, as plain numbers."""

    pair: Float[Tensor, "*h c c"]  # of key j in the output of query i; zero for j > i
    read: Float[Tensor, "*h c r"]  # of each lane at the start in the output of query i
    write: Float[Tensor, "*h c r"]  # of key j in each lane at the end
    carry: Float[Tensor, "*h r r"]  # of each lane at the start (last axis) in the change of each lane


def linear_weights(length: int, *, like: Tensor) -> ChunkWeights:
    """Linear attention (eq. 7): every earlier token counts one."""
    ones = torch.ones(length, length, dtype=like.dtype, device=like.device)
    return ChunkWeights(ones.tril(), ones[:, :1], ones[:, :1], ones.new_zeros(1, 1))


def momentum_weights(
    beta: Float[Tensor, "*h"], gamma: Float[Tensor, "*h"], length: int, *, like: Tensor
) -> ChunkWeights:
    """Momentum attention (eq. 13): γ(1 + β + … + βⁱ⁻ʲ), lanes (s, m)."""
    sums = gamma[..., None] * geometric_sums(beta, length)
    decay = powers(beta, length)
    carried = beta[..., None] * sums  # m adds βm to s one token later, β²m after two, …
    i = torch.arange(length, device=beta.device)
    zero = torch.zeros_like(beta)
    faded = (beta - 1) * geometric_sums(beta, length)[..., -1]  # β^length - 1, without the cancellation
    weights = ChunkWeights(
        pair=sums[..., (i[:, None] - i[None, :] + 1).clamp(min=0)],
        read=torch.stack([torch.ones_like(carried[..., 1:]), carried[..., 1:]], -1),
        write=torch.stack([sums[..., 1:], decay], -1).flip(-2),
        carry=torch.stack([torch.stack([zero, carried[..., -1]], -1), torch.stack([zero, faded], -1)], -2),
    )
    return ChunkWeights(*(weight.to(like.dtype) for weight in weights))


def chunked_scan(
    q: Float[Tensor, "*b n d"],
    k: Float[Tensor, "*b n d"],
    v: Float[Tensor, "*b n e"],
    lanes: Float[Tensor, "*b r d e"],
    z: Float[Tensor, "*b d"],
    *,
    full: ChunkWeights,
    last: ChunkWeights,
    elu: bool,
) -> tuple[Float[Tensor, "*b n e"], Float[Tensor, "*b n"], Float[Tensor, "*b r d e"], Float[Tensor, "*b d"]]:
    """Numerator, denominator, and the state after the last token, for n > 0.

    `full` are the weights of a whole chunk, `last` those of the n mod c tokens that remain. q, k are features, or
    with `elu` what elu + 1 makes features of.
    """
    return _ChunkedScan.apply(elu, q, k, v, lanes, z, *full, *last)


class _ChunkedScan(torch.autograd.Function):
    @staticmethod
    def forward(
        elu: bool, q: Tensor, k: Tensor, v: Tensor, lanes: Tensor, z: Tensor, *weights: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        numerators, denominators = _Pieces(v), _Pieces(q.new_empty(*q.shape[:-1], 1))
        for (q_c, k_c, v_c), w in _chunks((q, k, v), weights):
            if elu:
                q_c, k_c = elu_plus_one(q_c), elu_plus_one(k_c)
            numerator, denominator = _outputs(q_c, k_c, v_c, lanes, z, w)
            lanes, z = _advance(k_c, v_c, lanes, z, w)
            numerators.append(numerator)
            denominators.append(denominator)
        return numerators.joined(), denominators.joined().squeeze(-1), lanes, z

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.elu, *tensors = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(
        ctx: Any, d_numerator: Tensor, d_denominator: Tensor, d_lanes: Tensor, d_z: Tensor
    ) -> tuple[Tensor | None, ...]:
        with full_precision(d_numerator.device):
            learned = any(ctx.needs_input_grad[6:])
            gradients = (d_numerator, d_denominator[..., None], d_lanes, d_z)
            return None, *_backward(ctx.elu, ctx.saved_tensors, gradients, learned=learned)


def _backward(
    elu: bool, inputs: tuple[Tensor, ...], gradients: tuple[Tensor, ...], *, learned: bool
) -> tuple[Tensor | None, ...]:
    """Gradients of q, k, v, lanes, z and, if `learned`, of the weights; docs/derivations.md has the formulas."""
    q, k, v, lanes, z, *weights = inputs
    d_numerator, d_denominator, d_lanes, d_z = gradients
    states = []
    for (k_c, v_c), w in _chunks((k, v), weights):
        states.append((lanes, z))
        lanes, z = _advance(elu_plus_one(k_c) if elu else k_c, v_c, lanes, z, w)

    d_q, d_k, d_v = (_Pieces(x, backwards=True) for x in (q, k, v))
    d_weights: list[Tensor | None] = [None] * len(weights)
    for (q_c, k_c, v_c, d_num, d_den), w in reversed(_chunks((q, k, v, d_numerator, d_denominator), weights)):
        lanes, z = states.pop()
        if elu:
            q_c, k_c = elu_plus_one(q_c), elu_plus_one(k_c)
        scores = q_c @ k_c.transpose(-1, -2)
        d_weighted = d_num @ v_c.transpose(-1, -2)
        d_scores = (d_weighted * w.pair + d_den).tril()
        d_read = torch.einsum("...ce,...rde->...crd", d_num, lanes)
        d_write = torch.einsum("...ce,...rde->...crd", v_c, d_lanes)
        d_qc = d_scores @ k_c + _weigh(w.read, d_read) + d_den * z[..., None, :]
        d_kc = d_scores.transpose(-1, -2) @ q_c + _weigh(w.write, d_write) + d_z[..., None, :]
        d_q.append(d_qc * q_c.clamp(max=1) if elu else d_qc)  # φ' = min(φ, 1)
        d_k.append(d_kc * k_c.clamp(max=1) if elu else d_kc)
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
        d_lanes = (
            d_lanes
            + torch.einsum("...rs,...rde->...sde", w.carry, d_lanes)
            + torch.einsum("...cr,...cd,...ce->...rde", w.read, q_c, d_num)
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
    lanes = (
        lanes
        + torch.einsum("...rs,...sde->...rde", w.carry, lanes)
        + torch.einsum("...cr,...cd,...ce->...rde", w.write, k, v)
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
