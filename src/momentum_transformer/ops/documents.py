"""Documents packed one after the other: where each begins."""

import torch
from torch import Tensor


def cu_seqlens(boundaries: Tensor, n: int | None = None) -> Tensor:
    """`reset` (1, n) for documents packed one after the other, from where each begins and the last one ends.

    Args:
        boundaries: (documents + 1,) whole numbers that rise from 0, as flash-attention counts them: [0, 5, 12].
        n: tokens in all, by default the last boundary; what follows it is one more document.

    Returns:
        (1, n) booleans, True where a document begins.

    Examples:
        >>> cu_seqlens(torch.tensor([0, 2, 5])).int().tolist()
        [[1, 0, 1, 0, 0]]
    """
    whole = isinstance(boundaries, Tensor) and boundaries.ndim == 1 and boundaries.numel() > 0
    if not whole or boundaries.dtype not in (torch.int32, torch.int64):
        raise ValueError("cu_seqlens takes a tensor of whole numbers with one axis, such as tensor([0, 5, 12])")
    n = int(boundaries[-1]) if n is None else n
    if isinstance(n, bool) or not isinstance(n, int):
        raise ValueError(f"n must be a whole number of tokens, not {n!r}")
    checked = not torch.compiler.is_compiling()  # a compiled graph cannot look
    if checked and (int(boundaries[0]) != 0 or int(boundaries[-1]) > n or bool((boundaries.diff() < 0).any())):
        raise ValueError(f"cu_seqlens must rise from 0 to at most {n}, not {boundaries.tolist()}")
    reset = torch.zeros(n + 1, dtype=torch.bool, device=boundaries.device)
    reset[boundaries.long()] = True
    return reset[None, :n]
