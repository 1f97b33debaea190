"""Documents packed into one row, as Transformers tells of them: where each begins."""

import torch
from torch import Tensor

from ..ops.documents import cu_seqlens as starts_of
from ..ops.shapes import Bool


def document_starts(
    b: int, n: int, *, cu_seqlens: Tensor | None, seq_idx: Tensor | None
) -> Bool[Tensor, "b n"] | None:
    """True where a document begins, of b rows of n tokens; None where nothing is packed.

    Args:
        cu_seqlens: where each document of the only row begins and the last one ends; it wins over `seq_idx`.
        seq_idx: (b, n), the number of each token's document.
    """
    if cu_seqlens is not None:
        found = starts_of(cu_seqlens, n)
        if b != 1:
            raise ValueError(f"cu_seqlens packs documents into one row: the batch must be 1, not {b}")
        if not torch.compiler.is_compiling() and int(cu_seqlens[-1]) != n:
            raise ValueError(f"cu_seqlens packs documents into one row: it must end at {n}, not {int(cu_seqlens[-1])}")
        return found
    return None if seq_idx is None else starts_of_numbers(seq_idx, b, n)


def starts_of_numbers(seq_idx: Tensor, b: int, n: int) -> Bool[Tensor, "b n"]:
    """True where the number of the document changes."""
    if tuple(seq_idx.shape) != (b, n):
        raise ValueError(f"seq_idx must have shape {(b, n)}, one number a token, not {tuple(seq_idx.shape)}")
    starts = seq_idx.new_ones(b, n).bool()
    starts[:, 1:] = seq_idx[:, 1:] != seq_idx[:, :-1]
    return starts
