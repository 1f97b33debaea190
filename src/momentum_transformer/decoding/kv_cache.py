"""A KV cache with room for the steps to come, which the native kernels fill in place."""

import torch

from ..ops.state import CacheState


class KeptCache:
    """A ring of keys and values: every token so far and those to come, or the last `window`.

    Args:
        state: the tokens so far; the ring starts from a copy.
        capacity: how many tokens may follow; a window needs none.
    """

    def __init__(self, state: CacheState, dtype: torch.dtype, *, window: int | None, capacity: int | None) -> None:
        if window is None and (capacity is None or capacity < 0):
            raise ValueError(f"softmax needs max_new_tokens, the number of steps to come, not {capacity}")
        if window is not None:
            state = _existing_last(state, window - 1)
        b, h, self.given = state.k.shape[:3]
        size = window or max(1, self.given + (capacity or 0))
        k, v = (x.new_zeros(b, h, size, x.shape[-1], dtype=dtype) for x in (state.k, state.v))
        mask = state.mask.new_zeros(b, size)
        mask[:, : self.given] = state.mask
        for own, given in ((k, state.k), (v, state.v)):
            own[:, :, : self.given] = torch.where(state.mask[:, None, :, None], given, 0)
        self.ring, self.window = CacheState(k, v, mask), window

    def state(self, steps: int) -> CacheState:
        """The cache after so many steps: a view, or with a window a copy in the order of the tokens."""
        n, (k, v, mask) = self.given + steps, self.ring
        size = k.shape[2]
        mask = mask.clone()
        place = torch.arange(max(0, n - size), n) % size
        mask[:, place[max(0, len(place) - steps) :]] = True
        if self.window is None:
            return CacheState(k.narrow(2, 0, n), v.narrow(2, 0, n), mask.narrow(1, 0, n))
        place = place[max(0, len(place) - self.window + 1) :]
        return CacheState(k[:, :, place], v[:, :, place], mask[:, place])


def _existing_last(state: CacheState, count: int) -> CacheState:
    """The last `count` tokens at most, masked ones first, so that the ring overwrites these first."""
    place = torch.argsort(state.mask, dim=1, stable=True)
    place = place[:, max(0, place.shape[1] - count) :]
    rows = place[:, None, :, None]
    k, v = (x.gather(2, rows.expand(-1, x.shape[1], -1, x.shape[3])) for x in (state.k, state.v))
    return CacheState(k, v, state.mask.gather(1, place))
