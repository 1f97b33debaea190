"""Corrupted references for denoising training (Lee et al., 2018): the decoder learns to mend what it may produce."""

import torch
from torch import Tensor

FIRST_PIECE = 4  # below are unknown, padding, start and end
COPY, REPLACE, SWAP = range(3)


def corrupt(target: Tensor, lengths: Tensor, *, vocabulary: int, weight: float, generator: torch.Generator) -> Tensor:
    """Damage a share `weight` of each sentence's tokens; a new tensor.

    ⌊weight · length⌋ places of a sentence, at least one and all but the last at most, are drawn without repetition and
    visited in turn. At each, with equal chance, the token is copied onto the next one, replaced by a random piece, or
    swapped with the next one. A sentence of one token, padding, and anything at `weight` 0 stay as they are.
    """
    if target.ndim != 2 or lengths.shape != target.shape[:1]:
        raise ValueError(
            f"target must be (b, n) and lengths (b,), not {tuple(target.shape)} and {tuple(lengths.shape)}"
        )
    if not 0 <= weight <= 1:
        raise ValueError(f"weight is a share of the tokens, 0 to 1, not {weight}")
    if vocabulary <= FIRST_PIECE:
        raise ValueError(f"vocabulary must be more than the {FIRST_PIECE} special tokens, not {vocabulary}")
    b, n = target.shape
    if b and not 0 <= lengths.min() <= lengths.max() <= n:
        raise ValueError(f"lengths must be 0 to {n}, not {lengths.min()} to {lengths.max()}")
    result = target.clone()
    if weight == 0 or n < 2 or b == 0:
        return result
    lengths = lengths.to(target.device)
    last = (lengths - 1).clamp(min=0)
    counts = torch.minimum((lengths.double() * weight).floor().long().clamp(min=1), last)
    chance = torch.rand(b, n - 1, generator=generator, device=generator.device).to(target.device)
    beyond = torch.arange(n - 1, device=target.device) >= last[:, None]
    places = chance.masked_fill(beyond, -1.0).argsort(1, descending=True)[:, : int(counts.max())]
    kinds = torch.randint(3, places.shape, generator=generator, device=generator.device).to(target.device)
    pieces = torch.randint(FIRST_PIECE, vocabulary, places.shape, generator=generator, device=generator.device)
    pieces = pieces.to(target)
    kinds = kinds.masked_fill(torch.arange(places.shape[1], device=target.device) >= counts[:, None], -1)
    # one place of every sentence at a time: a later place may see what an earlier one left
    for place, kind, piece in zip(places.split(1, 1), kinds.split(1, 1), pieces.split(1, 1), strict=True):
        here, following = result.gather(1, place), result.gather(1, place + 1)
        swapped = kind == SWAP
        result.scatter_(1, place, torch.where(kind == REPLACE, piece, torch.where(swapped, following, here)))
        result.scatter_(1, place + 1, torch.where(swapped | (kind == COPY), here, following))
    return result
