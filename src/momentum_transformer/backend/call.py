"""One attention, checked and complete: what a backend refuses, or runs."""

from typing import NamedTuple, Protocol

import torch

from ..ops.autocast import full_precision
from ..ops.checks import wide_dtype
from ..ops.coefficients import Coefficients
from ..ops.feature_maps import FeatureMap, elu_plus_one, feature_width
from ..ops.shapes import Tensor
from ..ops.state import RecurrentState


class Call(NamedTuple):
    """q, k, v as they were given, the member of the family, and what goes with them.

    The recurrence is part of the call: a backend that does not know the member refuses it.
    """

    q: Tensor  # (b, h, n, d)
    k: Tensor  # (b, h, m, d), with m = n where order matters
    v: Tensor  # (b, h, m, e)
    c: Coefficients = Coefficients()
    erase: Tensor | None = None  # (b, h, n, d) features; None: those of k
    feature_map: FeatureMap | None = None
    causal: bool = True
    key_mask: Tensor | None = None  # (b, m)
    query_mask: Tensor | None = None  # (b, n)
    reset: Tensor | None = None  # (b, n)
    state: RecurrentState | None = None
    return_state: bool = False
    normalize: bool = True
    keeps_z: bool = True  # whether z is part of the state
    chunk_size: int | None = None
    eps: float = 1e-6
    numbers: tuple[float, ...] | None = None  # the coefficients, where all are plain numbers: a key for memos

    @property
    def wide(self) -> torch.dtype:
        """What is computed with: float32, or wider where an input or the state is."""
        return torch.float64 if self.state is not None and self.state.s.dtype == torch.float64 else wide_dtype(self.q)

    @property
    def elu(self) -> bool:
        return self.feature_map is elu_plus_one

    def state_shapes(self) -> dict[str, tuple[int, ...] | None]:
        """The shape of each part of the state; None where this member has no such part."""
        lead, d, e = tuple(self.k.shape[:2]), feature_width(self.k, self.feature_map), self.v.shape[-1]
        matrix = (*lead, d, e)
        return {"s": matrix, "m": None if self.c.beta is None else matrix, "z": (*lead, d) if self.keeps_z else None}

    def needs_gradients(self) -> bool:
        if not torch.is_grad_enabled():
            return False
        if self.q.requires_grad or self.k.requires_grad or self.v.requires_grad:
            return True
        tensors = (self.erase, *self.c, *(self.state or ()))
        return any(x is not None and x.requires_grad for x in tensors)

    def before(self, k: Tensor, v: Tensor) -> RecurrentState:
        """The state before the first token of features k: the given one, or zeros."""
        if self.state is not None:
            return self.state
        lead, d, e = k.shape[:2], k.shape[-1], v.shape[-1]
        return RecurrentState(
            v.new_zeros(*lead, d, e),
            None if self.c.beta is None else v.new_zeros(*lead, d, e),
            v.new_zeros(*lead, d) if self.keeps_z else None,
        )

    def features(self, *, nothing: float = 0.0, mapped: bool = True) -> "Call":
        """The same call with what does not exist hidden, widened, and φ applied unless it is `mapped` later."""
        with full_precision(self.q.device):
            q, k = hidden(self.q, self.query_mask), hidden(self.k, self.key_mask, nothing)
            v, erase = hidden(self.v, self.key_mask), self.erase
            q, k, v = (x.to(self.wide) for x in (q, k, v))
            if erase is not None:
                erase = hidden(erase, self.key_mask).to(self.wide)
            feature_map = self.feature_map
            if mapped and feature_map is not None:
                q, k = feature_map(q).to(self.wide), feature_map(k).to(self.wide)
                k, feature_map = (k if nothing else hidden(k, self.key_mask)), None
            c = self.c if self.key_mask is None else self.c.hidden(self.key_mask)
            return self._replace(q=q, k=k, v=v, c=c, erase=erase, feature_map=feature_map)


def hidden(x: Tensor, mask: Tensor | None, nothing: float = 0.0) -> Tensor:
    """`nothing` where the token does not exist, whatever stands there: a NaN in the padding stays out of sight."""
    return x if mask is None else torch.where(mask[:, None, :, None], x, nothing)


class Backend(Protocol):
    """One way to compute attention."""

    @property
    def name(self) -> str: ...

    def refusal(self, call: Call) -> str | None:
        """Why it cannot run this call; None where it can."""

    def run(self, call: Call) -> tuple[Tensor, RecurrentState | None]:
        """y, and the state after the last token; without `return_state` it may be None."""
