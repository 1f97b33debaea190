"""Locality-sensitive hashing attention (Reformer), by the paper's protocol.

Queries serve as keys, normalised. In each round, tokens are sorted by a random hash and cut into chunks; a token sees
its own chunk and the one before it in that order. Rounds are averaged. Which tokens share a chunk depends on the whole
sequence, so there is no recurrent form.
"""

import torch

from .shapes import Bool, Float, Int, Tensor

SELF_PENALTY = 1e5  # a token looks at itself only where it sees nothing else


def hash_buckets(x: Float[Tensor, "*b n d"], rotations: Float[Tensor, "*#b d half"]) -> Int[Tensor, "*b n"]:
    """The nearest of 2·half random directions, ±."""
    projected = x @ rotations
    return torch.cat([projected, -projected], -1).argmax(-1)


def lsh_round(
    qk: Float[Tensor, "*b n d"],
    v: Float[Tensor, "*b n e"],
    buckets: Int[Tensor, "*b n"],
    *,
    chunk_size: int,
    causal: bool,
    mask: Bool[Tensor, "*#b n"] | None = None,
) -> Float[Tensor, "*b n e"]:
    """One round: softmax attention inside chunks of the sorted tokens, one chunk back."""
    n = qk.shape[-2]
    if mask is not None:  # the masked go to the end of the order, so that they fill no chunk of the others
        buckets = torch.where(mask, buckets, torch.iinfo(buckets.dtype).max)
    order = buckets.argsort(dim=-1, stable=True)
    chunks = -(-n // chunk_size)
    padding = chunks * chunk_size - n

    def cut(x: Tensor) -> Tensor:
        """(..., n, d) in the order of the hash → (..., chunks, chunk_size, d), padded with zeros."""
        x = x.gather(-2, order[..., None].expand(*order.shape, x.shape[-1]))
        return torch.nn.functional.pad(x, (0, 0, 0, padding)).unflatten(-2, (chunks, chunk_size))

    def with_previous(x: Tensor) -> Tensor:
        """Each chunk behind the one before it; the first has none."""
        previous = torch.cat([torch.zeros_like(x[..., :1, :, :]), x[..., :-1, :, :]], -3)
        return torch.cat([previous, x], -2)

    # where each token stood, counted from 1, so that 0 marks what is padding or does not exist
    stood = torch.arange(1, n + 1, device=qk.device).expand(buckets.shape)
    if mask is not None:
        stood = torch.where(mask, stood, 0)
    place = cut(stood[..., None].to(qk.dtype))
    key_place = with_previous(place).transpose(-1, -2)
    queries = cut(qk)
    keys = torch.nn.functional.normalize(with_previous(queries), dim=-1)
    scores = queries @ keys.transpose(-1, -2) / qk.shape[-1] ** 0.5
    hidden = key_place == 0
    if causal:
        hidden = hidden | (key_place > place)
    scores = scores - SELF_PENALTY * (key_place == place)
    scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
    y = scores.softmax(-1) @ with_previous(cut(v))
    y = y.flatten(-3, -2)[..., :n, :]
    back = order.argsort(dim=-1)
    y = y.gather(-2, back[..., None].expand(*back.shape, y.shape[-1]))
    return y if mask is None else torch.where(mask[..., None], y, 0)


def lsh_attention(
    qk: Float[Tensor, "*b n d"],
    v: Float[Tensor, "*b n e"],
    rotations: Float[Tensor, "rounds d half"],
    *,
    chunk_size: int,
    causal: bool,
    mask: Bool[Tensor, "*#b n"] | None = None,
) -> Float[Tensor, "*b n e"]:
    """The mean over rounds, one set of rotations each."""
    if qk.shape[-2] == 0:
        return v
    rounds = [
        lsh_round(qk, v, hash_buckets(qk, rotation), chunk_size=chunk_size, causal=causal, mask=mask)
        for rotation in rotations
    ]
    return torch.stack(rounds).mean(0)
