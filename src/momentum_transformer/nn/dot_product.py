"""A drop-in for torch.nn.functional.scaled_dot_product_attention."""

import math

import torch
from torch import Tensor

from ..attention import momentum_attention
from .masks import seen, split


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    beta: float | Tensor = 0.1,
    gamma: float | Tensor = 1.0,
) -> Tensor:
    """Momentum attention with PyTorch's signature: (b, h, n, d) or (b, n, d) in, the same out, in linear time.

    Unlike PyTorch, `is_causal` may be combined with a mask. A query that sees no key gives zero.

    Args:
        query: q (b, h, n, d) or (b, n, d).
        key: k (b, h, m, d) or (b, m, d).
        value: v (b, h, m, e) or (b, m, e).
        attn_mask: what hides keys from every query, such as padding as (b, 1, 1, m), causal order, or both in one; a
            bool mask is True where a key is seen. Any other mask is refused.
        dropout_p: 0, since there are no weights to drop.
        is_causal: whether a query sees only the keys up to its own place.
        scale: None or 1 / √d, since there are no scores to scale.
        enable_gqa: whether key and value may have fewer heads, of which each serves several queries.
        beta: momentum; β = 0 with γ = 1 is linear attention.
        gamma: step size.

    Returns:
        y (b, h, n, e) or (b, n, e).

    Examples:
        >>> q, k, v = torch.randn(3, 2, 4, 50, 16).unbind(0)
        >>> y = scaled_dot_product_attention(q, k, v, is_causal=True)
    """
    if query.ndim not in (3, 4):
        raise ValueError(f"query must be (b, h, n, d) or (b, n, d), not of shape {tuple(query.shape)}")
    if dropout_p:
        raise ValueError(f"dropout_p must be 0, not {dropout_p}: linear-time attention has no weights to drop")
    if scale is not None and not math.isclose(scale, query.shape[-1] ** -0.5, rel_tol=1e-6):
        raise ValueError(f"scale must be None or 1 / √d, not {scale}: linear-time attention has no scores to scale")
    if query.ndim == 3:
        mask = attn_mask.unsqueeze(-3) if attn_mask is not None and attn_mask.ndim == 3 else attn_mask
        query, key, value = (x.unsqueeze(1) for x in (query, key, value))
        y = scaled_dot_product_attention(query, key, value, mask, is_causal=is_causal, beta=beta, gamma=gamma)
        return y.squeeze(1)
    if enable_gqa:
        key, value = (_repeated(x, query, name) for x, name in ((key, "key"), (value, "value")))
    (b, n), m = (query.shape[0], query.shape[2]), key.shape[2]
    key_mask, ordered = _masks(attn_mask, (b, query.shape[1], n, m))
    if is_causal and n != m:
        raise ValueError(f"is_causal needs as many queries as keys, not {n} and {m}")
    return momentum_attention(
        query,
        key,
        value,
        beta=beta,
        gamma=gamma,
        causal=is_causal or ordered,
        key_mask=key_mask,
        # a key that is hidden may be that of a query that is not
        query_mask=None if key_mask is None else torch.ones(b, n, dtype=torch.bool, device=query.device),
    )


def _masks(mask: Tensor | None, shape: tuple[int, int, int, int]) -> tuple[Tensor | None, bool]:
    if mask is None:
        return None, False
    b, _, _, m = shape
    visible = seen(mask, "attn_mask", hidden=False)
    visible = visible[(None,) * (4 - visible.ndim)] if visible.ndim < 4 else visible
    fits = visible.ndim == 4 and all(have in (1, want) for have, want in zip(visible.shape, shape, strict=True))
    if not fits:
        raise ValueError(f"attn_mask of shape {tuple(mask.shape)} cannot be broadcast to {shape}")
    key_mask, causal = split(visible, "attn_mask")
    return None if key_mask is None else key_mask.expand(b, m), causal


def _repeated(x: Tensor, query: Tensor, name: str) -> Tensor:
    heads, own = query.shape[1], x.shape[1]
    if own == 0 or heads % own:
        raise ValueError(
            f"enable_gqa needs heads of query that are a multiple of those of {name}, not {heads} and {own}"
        )
    return x.repeat_interleave(heads // own, 1)
