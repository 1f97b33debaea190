"""Softmax attention (eq. 3), the yardstick, through PyTorch's own kernels; decoding has a KV cache."""

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (the field's name for it)

from .checks import check_mask, check_qkv
from .shapes import Bool, Float, Tensor
from .state import CacheState

BLOCK = 128  # queries that a window is laid over at a time, at least


def softmax_attention(
    q: Float[Tensor, "b h n d"],
    k: Float[Tensor, "b h m d"],
    v: Float[Tensor, "b h m e"],
    *,
    causal: bool = True,
    key_mask: Bool[Tensor, "b m"] | None = None,
    query_mask: Bool[Tensor, "b n"] | None = None,
    reset: Bool[Tensor, "b n"] | None = None,
    window: int | None = None,
    state: CacheState | None = None,
    return_state: bool = False,
    dropout: float = 0.0,
) -> Any:
    """softmax(qkᵀ/√d) v (eq. 3). Masks, resets and states mean what they mean in `recurrent_attention`.

    Args:
        q: queries (b, h, n, d).
        k: keys (b, h, m, d).
        v: values (b, h, m, e).
        causal: whether a query sees only the keys up to its own place.
        key_mask: False where a token does not exist.
        query_mask: False where the output is zero; by default `key_mask`, where queries and keys are equally many.
        reset: True where a new document begins.
        window: a query sees the last so many tokens that exist, itself included; without causal order as many on
            either side. The cache then holds window - 1 tokens. None: all of them.
        state: keys and values of earlier tokens.
        return_state: also return the state after the last token (causal only).
        dropout: share of the attention weights that is dropped.

    Returns:
        y (b, h, n, e), or with `return_state` the pair (y, CacheState).

    Examples:
        >>> q, k, v = torch.randn(3, 2, 8, 100, 32)
        >>> y = softmax_attention(q, k, v, window=16)
    """
    check_qkv(q, k, v, causal=causal)
    check_mask("key_mask", key_mask, k)
    check_mask("query_mask", query_mask, q)
    check_mask("reset", reset, q, meaning="True = a document begins")
    check_window(window)
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must be in [0, 1), not {dropout}")
    if not causal and (state is not None or return_state):
        raise ValueError("state and return_state need causal=True: without causal order there is no cache to keep")
    if (window is not None or reset is not None) and q.shape[2] != k.shape[2]:
        raise ValueError("window and reset need queries and keys of the same tokens")
    if query_mask is None and q.shape[2] == k.shape[2]:
        query_mask = key_mask

    past = 0
    cache = None
    if state is not None or return_state:
        cache, past = _cache(k, v, key_mask, state)
        k, v = cache.k, cache.v
        key_mask = cache.mask if state is not None else key_mask
    if query_mask is not None:  # a NaN in the padding stays out of sight
        q = torch.where(query_mask[:, None, :, None], q, 0)
    if key_mask is not None:
        k, v = (torch.where(key_mask[:, None, :, None], x, 0) for x in (k, v))
    if window is None and reset is None:
        y = _attention(q, k, v, _visible(q, k, key_mask, causal, past), causal, dropout)
    else:
        y = _by_blocks(q, k, v, _Sight(key_mask, reset, window, causal, past, k.shape[2]), dropout)
    if query_mask is not None:
        y = torch.where(query_mask[:, None, :, None], y, 0)
    if not return_state or cache is None:
        return y
    return y, _bounded(_forgotten(cache, reset), window)


def _attention(q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None, causal: bool, dropout: float) -> Tensor:
    """softmax(qkᵀ/√d) v over the keys that are visible; a query that sees none gives zero."""
    if visible is None:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal and q.shape[2] > 1, dropout_p=dropout)
    # a query that sees no key would divide zero by zero: let it see all, then forget its output
    blind = ~visible.any(-1, keepdim=True)
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=visible | blind, dropout_p=dropout)
    return torch.where(blind, 0, y)


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


class _Sight:
    """Which keys each query sees under windows and resets; queries are the last tokens among the keys."""

    def __init__(
        self, mask: Tensor | None, reset: Tensor | None, window: int | None, causal: bool, past: int, keys: int
    ) -> None:
        self.mask, self.window, self.causal, self.past, self.keys = mask, window, causal, past, keys
        self.count = None if mask is None else mask.cumsum(1)  # tokens that exist, up to here
        self.document = None if reset is None else F.pad(reset.cumsum(1), (past, 0))

    def reach(self, start: int, stop: int) -> tuple[int, int]:
        """The keys that the queries start … stop may see, where masked tokens take no place in the window."""
        first, last = 0, self.past + stop if self.causal else self.keys
        if self.window is not None and self.mask is None:
            first = max(0, self.past + start - self.window + 1)
            last = last if self.causal else min(self.keys, stop + self.window - 1)
        return first, last

    def visible(self, start: int, stop: int, first: int, last: int, device: torch.device) -> Tensor:
        """(b or 1, 1, queries, keys)"""
        query = torch.arange(self.past + start, self.past + stop, device=device)[:, None]
        key = torch.arange(first, last, device=device)[None, :]
        seen = ((key <= query) if self.causal else torch.ones_like(key <= query))[None]
        if self.window is not None:
            distance: Tensor = (query - key).abs()[None]
            if self.count is not None:
                distance = (self.count[:, query[:, 0], None] - self.count[:, None, first:last]).abs()
            seen = seen & (distance < self.window)
        if self.document is not None:
            seen = seen & (self.document[:, query[:, 0], None] == self.document[:, None, first:last])
        if self.mask is not None:
            seen = seen & self.mask[:, None, first:last]
        return seen[:, None]


def _by_blocks(q: Tensor, k: Tensor, v: Tensor, sight: _Sight, dropout: float) -> Tensor:
    """Some queries at a time, each with the keys that they may see: linear time for a window without a mask."""
    n = q.shape[2]
    size = max(n, 1) if sight.window is None else max(sight.window, BLOCK)
    made = []
    for start in range(0, max(n, 1), size):  # a pass for no tokens gives no outputs, in the right shape
        stop = min(start + size, n)
        first, last = sight.reach(start, stop)
        visible = sight.visible(start, stop, first, last, q.device)
        made.append(_attention(q[:, :, start:stop], k[:, :, first:last], v[:, :, first:last], visible, False, dropout))
    return torch.cat(made, 2)


def _cache(k: Tensor, v: Tensor, mask: Tensor | None, state: CacheState | None) -> tuple[CacheState, int]:
    """All keys and values so far, and how many came before."""
    if mask is None:
        mask = torch.ones(k.shape[0], k.shape[2], dtype=torch.bool, device=k.device)
    if state is None:
        return CacheState(k, v, mask), 0
    check_cache(state, k, v)
    k, v = torch.cat([state.k.to(k.dtype), k], 2), torch.cat([state.v.to(v.dtype), v], 2)
    return CacheState(k, v, torch.cat([state.mask, mask], 1)), state.k.shape[2]


def _forgotten(cache: CacheState, reset: Tensor | None) -> CacheState:
    """Without the documents that have ended."""
    if reset is None:
        return cache
    document = F.pad(reset.cumsum(1), (cache.mask.shape[1] - reset.shape[1], 0))
    return cache._replace(mask=cache.mask & (document == document[:, -1:]))


def _bounded(cache: CacheState, window: int | None) -> CacheState:
    """The last window - 1 tokens that exist, in their order."""
    if window is None or cache.k.shape[2] < window:
        return cache
    if window == 1:
        return CacheState(cache.k[:, :, :0], cache.v[:, :, :0], cache.mask[:, :0])
    place = torch.argsort(cache.mask, dim=1, stable=True)[:, -(window - 1) :]
    rows = place[:, None, :, None]
    k, v = (x.gather(2, rows.expand(-1, x.shape[1], -1, x.shape[3])) for x in (cache.k, cache.v))
    return CacheState(k, v, cache.mask.gather(1, place))


def check_window(window: object) -> None:
    whole = isinstance(window, int) and not isinstance(window, bool)
    if window is not None and not (whole and isinstance(window, int) and window >= 1):
        raise ValueError(f"window must be a positive whole number of tokens, not {window!r}")


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
