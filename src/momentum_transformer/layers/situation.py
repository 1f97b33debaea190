"""What a mixer is, and what it is told.

A mixer is a small frozen object. `build` gives what a layer holds: the mixer itself where there is nothing to learn, a
module with the same call where there is. It is called with q, k, v (b, h, n, d) and a `Situation`, and returns y and
the state after the last token.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor


class Situation(NamedTuple):
    """Masks, state and tokens of one call of an attention layer."""

    causal: bool
    key_mask: Tensor | None = None  # (b, m)
    state: Any = None
    return_state: bool = False
    training: bool = False
    query_mask: Tensor | None = None  # (b, n) by default `key_mask`, where queries and keys are equally many
    x: Tensor | None = None  # (b, n, width) the tokens themselves; None where queries and keys are of different tokens
    reset: Tensor | None = None  # (b, n) True where a new document begins

    def mask_of_queries(self, q: Tensor, k: Tensor) -> Tensor | None:
        if self.query_mask is not None or q.shape[2] != k.shape[2]:
            return self.query_mask
        return self.key_mask

    def reversed(self) -> "Situation":
        """The situation of the reversed sequence: a document then begins where it has ended."""
        reset = self.reset
        if reset is not None:
            reset = torch.cat([torch.ones_like(reset[:, :1]), reset[:, 1:].flip(1)], 1)[:, : reset.shape[1]]
        turned = (None if x is None else x.flip(1) for x in (self.key_mask, self.query_mask, self.x))
        key_mask, query_mask, x = turned
        return self._replace(key_mask=key_mask, query_mask=query_mask, x=x, reset=reset)

    def refuse_reset(self, name: str) -> None:
        if self.reset is not None:
            raise ValueError(f"{name} knows no resets: it cannot keep packed documents apart; give each a row")


Mix = Callable[[Tensor, Tensor, Tensor, Situation], tuple[Tensor, Any]]


class Mixer(Protocol):
    def build(self, width: int, heads: int) -> Mix: ...


def across(mixer: Mixer) -> Mixer:
    """The mixer for cross attention: itself, or its `across` where it computes gates from its own tokens."""
    other: Mixer = getattr(mixer, "across", mixer)
    return other
