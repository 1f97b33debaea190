"""From the masks and positions that Transformers gives to those that an encoder takes."""

import torch
from torch import Tensor

from ..ops.documents import cu_seqlens
from .encoder_cache import MomentumCache
from .packing import starts_of_numbers

NO_CACHE = "packed documents and use_cache do not go together: a cache is of one document a row"


def checked_cache(cache: object, wanted: bool) -> MomentumCache | None:
    """The cache to carry on, a new one where one is wanted, or none."""
    if cache is None:
        return MomentumCache() if wanted else None
    if not isinstance(cache, MomentumCache):
        raise ValueError(f"past_key_values must be a MomentumCache, not {type(cache).__name__}: leave it out at first")
    return cache


def existing(attention_mask: Tensor | None, x: Tensor) -> Tensor | None:
    """True (b, n) where a token of x exists; None where all do."""
    if attention_mask is None:
        return None
    b, n = x.shape[:2]
    if attention_mask.ndim != 2 or attention_mask.shape[0] != b or attention_mask.shape[1] < n:
        raise ValueError(f"attention_mask must have shape ({b}, {n} or more), not {tuple(attention_mask.shape)}")
    mask = attention_mask[:, attention_mask.shape[1] - n :].bool()
    # most batches have no padding, and run faster without a mask; a compiled graph cannot look
    return None if not torch.compiler.is_compiling() and bool(mask.all()) else mask


def places_of(
    x: Tensor, mask: Tensor | None, given: Tensor | None, *, before: Tensor | None, reset: Tensor | None
) -> Tensor:
    """(b or 1, n) where each token stands, counted among those of its document that exist, after those before."""
    if given is not None:
        return given
    n = x.shape[1]
    places = torch.arange(n, device=x.device)[None] if mask is None else mask.cumsum(1) - mask.long()
    if reset is not None:
        places = places - torch.where(reset, places, 0).cummax(1).values
    return places if before is None else places + before[:, None]


def check_places(places: Tensor, size: int) -> None:
    """Refuse places that a table of learned positions does not have; a compiled graph cannot look."""
    if not torch.compiler.is_compiling() and places.numel() and int(places.max()) >= size:
        raise ValueError(
            f"learned positions end at max_position_embeddings={size}, and a token stands at place "
            f"{int(places.max())}: give fewer tokens, or make a model with more positions"
        )


def document_starts(
    x: Tensor,
    mask: Tensor | None,
    *,
    position_ids: Tensor | None,
    boundaries: Tensor | None,
    seq_idx: Tensor | None,
    cached: bool,
) -> Tensor | None:
    """True (b, n) where a packed document begins; None where rows are one document each.

    Boundaries win over numbers of documents, and both over positions. A compiled graph cannot look whether positions
    begin again: there they count as packed, and with a cache the graph fails where they do.
    """
    b, n = x.shape[:2]
    if boundaries is not None:
        if b != 1:
            raise ValueError(f"cu_seq_lens_q is for a batch of 1 that holds all documents, not of {b}")
        return cu_seqlens(boundaries, n)
    if seq_idx is not None:
        return starts_of_numbers(seq_idx, b, n)
    if position_ids is None:
        return None
    starts = _starts_of_positions(position_ids.expand(b, n), mask)
    if not torch.compiler.is_compiling():
        return starts if bool(starts.any()) else None
    if cached:
        torch._assert_async(~starts.any(), NO_CACHE)
    return None if cached else starts


def _starts_of_positions(positions: Tensor, mask: Tensor | None) -> Tensor:
    """Where the position of a token that exists does not rise above that of the last one that exists."""
    starts = torch.zeros_like(positions, dtype=torch.bool)
    if mask is None:
        starts[:, 1:] = positions[:, 1:] <= positions[:, :-1]
        return starts
    column = torch.arange(positions.shape[1], device=mask.device)
    last = torch.where(mask, column, -1).cummax(1).values[:, :-1]
    rises = positions[:, 1:] > positions.gather(1, last.clamp(min=0))
    starts[:, 1:] = mask[:, 1:] & (last >= 0) & ~rises
    return starts
