"""From the masks and positions that Transformers gives to those that an encoder takes."""

import torch
from torch import Tensor

from ..ops.documents import cu_seqlens
from .encoder_cache import MomentumCache


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


def places_of(x: Tensor, mask: Tensor | None, given: Tensor | None, before: Tensor | None) -> Tensor:
    """(b or 1, n) where each token stands, counted among those that exist, after those before."""
    if given is not None:
        return given
    n = x.shape[1]
    places = torch.arange(n, device=x.device)[None] if mask is None else (mask.cumsum(1) - 1).clamp(min=0)
    return places if before is None else places + before[:, None]


def document_starts(x: Tensor, position_ids: Tensor | None, boundaries: Tensor | None) -> Tensor | None:
    """True (b, n) where a packed document begins; None where rows are one document each. Boundaries win."""
    if boundaries is not None:
        if x.shape[0] != 1:
            raise ValueError(f"cu_seq_lens_q is for a batch of 1 that holds all documents, not of {x.shape[0]}")
        return cu_seqlens(boundaries, x.shape[1])
    if position_ids is None or torch.compiler.is_compiling():
        return None
    starts = position_ids.expand(x.shape[:2]) == 0
    return starts if bool(starts[:, 1:].any()) else None
