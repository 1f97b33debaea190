"""Softmax attention (eq. 3), the yardstick, through PyTorch's own kernels; decoding keeps every key and value."""

from typing import Literal, overload

import torch
import torch.nn.functional as F  # noqa: N812 (the field's name for it)

from .checks import check_mask, check_qkv
from .shapes import Bool, Float, Tensor
from .state import CacheState


@overload
def softmax_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = ...,
    key_mask: Tensor | None = ...,
    query_mask: Tensor | None = ...,
    state: CacheState | None = ...,
    return_state: Literal[False] = ...,
    dropout: float = ...,
) -> Tensor: ...
@overload
def softmax_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = ...,
    key_mask: Tensor | None = ...,
    query_mask: Tensor | None = ...,
    state: CacheState | None = ...,
    return_state: Literal[True],
    dropout: float = ...,
) -> tuple[Tensor, CacheState]: ...
def softmax_attention(
    q: Float[Tensor, "b h n d"],
    k: Float[Tensor, "b h m d"],
    v: Float[Tensor, "b h m e"],
    *,
    causal: bool = True,
    key_mask: Bool[Tensor, "b m"] | None = None,
    query_mask: Bool[Tensor, "b n"] | None = None,
    state: CacheState | None = None,
    return_state: bool = False,
    dropout: float = 0.0,
) -> Tensor | tuple[Tensor, CacheState]:
    """softmax(qkᵀ/√d) v (eq. 3). Masks and states mean what they mean in `momentum_attention`."""
    check_qkv(q, k, v, causal=causal)
    check_mask("key_mask", key_mask, k)
    check_mask("query_mask", query_mask, q)
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must be in [0, 1), not {dropout}")
    if not causal and (state is not None or return_state):
        raise ValueError("state and return_state need causal=True: without causal order there is no cache to keep")
    if query_mask is None and q.shape[2] == k.shape[2]:
        query_mask = key_mask

    past = 0
    if state is not None or return_state:
        mask = (
            key_mask if key_mask is not None else torch.ones(k.shape[0], k.shape[2], dtype=torch.bool, device=k.device)
        )
        if state is not None:
            check_cache(state, k, v)
            past = state.k.shape[2]
            k, v = torch.cat([state.k.to(k.dtype), k], 2), torch.cat([state.v.to(v.dtype), v], 2)
            mask = torch.cat([state.mask, mask], 1)
            key_mask = mask
        state = CacheState(k, v, mask)

    if query_mask is not None:  # a NaN in the padding stays out of sight
        q = torch.where(query_mask[:, None, :, None], q, 0)
    visible = _visible(q, k, key_mask, causal, past)
    if visible is None:
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal and q.shape[2] > 1, dropout_p=dropout)
    else:
        if key_mask is not None:
            k, v = (torch.where(key_mask[:, None, :, None], x, 0) for x in (k, v))
        # a query that sees no key would divide zero by zero: let it see all, then forget its output
        blind = ~visible.any(-1, keepdim=True)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=visible | blind, dropout_p=dropout)
        y = torch.where(blind, 0, y)
    if query_mask is not None:
        y = torch.where(query_mask[:, None, :, None], y, 0)
    return (y, state) if return_state and state is not None else y


def _visible(q: Tensor, k: Tensor, key_mask: Tensor | None, causal: bool, past: int) -> Tensor | None:
    """Which key each query sees, (b or 1, 1, n, m); None where plain (causal) attention says it all."""
    n, m = q.shape[2], k.shape[2]
    order = None
    if causal and n > 1 and (past > 0 or key_mask is not None):
        order = torch.ones(n, m, dtype=torch.bool, device=q.device).tril(past)[None, None]
    if key_mask is None:
        return order
    keys = key_mask[:, None, None, :].expand(-1, 1, n, m)
    return keys if order is None else keys & order


def check_cache(state: object, k: Tensor, v: Tensor) -> None:
    if not isinstance(state, CacheState):
        raise ValueError(f"state must be a CacheState, not {type(state).__name__}")
    b, h, past = k.shape[0], k.shape[1], state.k.shape[2]
    for name, cached, shape, device in (
        ("k", state.k, (b, h, past, k.shape[3]), k.device),
        ("v", state.v, (b, h, past, v.shape[3]), k.device),
        ("mask", state.mask, (b, past), k.device),
    ):
        if tuple(cached.shape) != shape:
            raise ValueError(
                f"state.{name} must have shape {shape} for this batch, heads and width, not {tuple(cached.shape)}"
            )
        if cached.device != device:
            raise ValueError(f"state.{name} must be on {device}, the device of q, not {cached.device}")
    if state.mask.dtype != torch.bool:
        raise ValueError(f"state.mask must be bool, not {state.mask.dtype}")
