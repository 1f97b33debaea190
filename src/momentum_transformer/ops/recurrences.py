"""Which recurrence: linear or momentum, each with what its forms need; and `run_causal`, which picks the form.

A new member of the family is one more class here.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol

import torch

from .bidirectional import weights_by_age
from .chunked import ChunkWeights, chunked_scan, linear_weights, momentum_weights
from .feature_maps import FeatureMap, elu_plus_one
from .kept import kept
from .masking import compact, linear_state_after, momentum_state_after, spread
from .quadratic import momentum_quadratic
from .recurrent import linear_step, momentum_step, token_by_token
from .shapes import Tensor
from .state import LinearState, MomentumState

CHUNK_SIZE = 128  # of the chunked form
KEPT_LENGTH = 4096  # weights of longer sequences are made anew
Backend = Literal["auto", "native", "chunked", "quadratic", "recurrent"]


class Causal(NamedTuple):
    """What the causal forms return: y = numerator / denominator, and the state after the last token."""

    numerator: Tensor
    denominator: Tensor
    state: Any  # None where it was not asked for and costs something


class Recurrence(Protocol):
    """Features q, k (..., n, d), values v (..., n, e), a state, and weights that are plain numbers."""

    @property
    def state_type(self) -> type[Any]: ...

    def step(self, q: Tensor, k: Tensor, v: Tensor, state: Any) -> tuple[Tensor, Tensor, Any]: ...

    def quadratic(
        self, q: Tensor, k: Tensor, v: Tensor, state: Any, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Any]: ...

    def chunk_weights(self, length: int, like: Tensor) -> ChunkWeights: ...

    def pack(self, state: Any) -> Tensor: ...

    def unpack(self, lanes: Tensor, z: Tensor) -> Any: ...

    def state_after(self, length: Tensor, k: Tensor, v: Tensor, state: Any) -> Any: ...

    def by_age(self, length: int, dtype: torch.dtype) -> Tensor | None: ...


class Momentum(NamedTuple):
    """Heavy-ball momentum in the numerator (eq. 12, 13, 14)."""

    beta: Tensor
    gamma: Tensor
    constant: tuple[float, float] | None = None  # β and γ, where both are plain numbers

    @property
    def state_type(self) -> type[MomentumState]:
        return MomentumState

    def step(self, q: Tensor, k: Tensor, v: Tensor, state: MomentumState) -> tuple[Tensor, Tensor, MomentumState]:
        return momentum_step(q, k, v, state, beta=self.beta, gamma=self.gamma)

    def quadratic(
        self, q: Tensor, k: Tensor, v: Tensor, state: MomentumState, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, MomentumState]:
        return momentum_quadratic(q, k, v, state, beta=self.beta, gamma=self.gamma, mask=mask)

    def chunk_weights(self, length: int, like: Tensor) -> ChunkWeights:
        return momentum_weights(self.beta, self.gamma, length, like=like)

    def pack(self, state: MomentumState) -> Tensor:
        return torch.stack([state.s, state.m], -3)

    def unpack(self, lanes: Tensor, z: Tensor) -> MomentumState:
        return MomentumState(m=lanes[..., 1, :, :], s=lanes[..., 0, :, :], z=z)

    def state_after(self, length: Tensor, k: Tensor, v: Tensor, state: MomentumState) -> MomentumState:
        return momentum_state_after(length, k, v, state, beta=self.beta, gamma=self.gamma)

    def by_age(self, length: int, dtype: torch.dtype) -> Tensor:
        """The weights of keys without causal order (`weights_by_age`)."""
        if self.constant is None or length > KEPT_LENGTH:
            return self._by_age(length, dtype)[0]
        return kept((*self.constant, length, dtype, self.beta.device), partial(self._by_age, length, dtype))[0]

    def _by_age(self, length: int, dtype: torch.dtype) -> tuple[Tensor]:
        return (weights_by_age(self.beta, self.gamma, length).to(dtype).contiguous(),)


@dataclass(frozen=True)
class Linear:
    """No momentum (eq. 5, 7, 8). The quadratic reference is that of momentum at β = 0, γ = 1."""

    state_type = LinearState

    def step(self, q: Tensor, k: Tensor, v: Tensor, state: LinearState) -> tuple[Tensor, Tensor, LinearState]:
        return linear_step(q, k, v, state)

    def quadratic(
        self, q: Tensor, k: Tensor, v: Tensor, state: LinearState, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, LinearState]:
        before = MomentumState(m=torch.zeros_like(state.s), s=state.s, z=state.z)
        numerator, denominator, after = Momentum(v.new_zeros(1), v.new_ones(1)).quadratic(q, k, v, before, mask)
        return numerator, denominator, LinearState(s=after.s, z=after.z)

    def chunk_weights(self, length: int, like: Tensor) -> ChunkWeights:
        return linear_weights(length, like=like)

    def pack(self, state: LinearState) -> Tensor:
        return state.s[..., None, :, :]

    def unpack(self, lanes: Tensor, z: Tensor) -> LinearState:
        return LinearState(s=lanes.squeeze(-3), z=z)

    def state_after(self, length: Tensor, k: Tensor, v: Tensor, state: LinearState) -> LinearState:
        return linear_state_after(length, k, v, state)

    def by_age(self, length: int, dtype: torch.dtype) -> None:
        return None


def run_causal(
    recurrence: Recurrence,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    state: Any,
    *,
    feature_map: FeatureMap | None,
    mask: Tensor | None,
    backend: Backend,
    chunk_size: int,
    return_state: bool,
) -> Causal:
    """The recurrence in the form that was asked for, or in the fastest: by token for one, by chunk for more."""
    n = q.shape[-2]
    if n == 0:  # nothing, tied to all inputs so that each gets its (empty) gradient
        nothing = q.sum(-1) * k.sum(-1)
        return Causal(v * nothing[..., None], nothing, state)
    if backend == "chunked" or (backend == "auto" and n > 1):
        return _chunked(
            recurrence,
            q,
            k,
            v,
            state,
            feature_map=feature_map,
            mask=mask,
            chunk_size=chunk_size,
            return_state=return_state,
        )
    if feature_map is not None:
        q, k = feature_map(q), feature_map(k)
    if backend == "quadratic":
        return Causal(*recurrence.quadratic(q, k, v, state, mask))
    return Causal(*token_by_token(recurrence.step, q, k, v, state, mask))


def _chunked(
    recurrence: Recurrence,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    state: Any,
    *,
    feature_map: FeatureMap | None,
    mask: Tensor | None,
    chunk_size: int,
    return_state: bool,
) -> Causal:
    """In linear time, without the masked tokens."""
    if mask is not None:
        q, k, v = compact(mask, q, k, v)
    fused = feature_map is elu_plus_one  # the paper's φ is applied chunk by chunk, and never stored
    if feature_map is not None and not fused:
        q, k = feature_map(q), feature_map(k)
    size = min(chunk_size, q.shape[-2])
    numerator, denominator, lanes, z = chunked_scan(
        q,
        k,
        v,
        recurrence.pack(state),
        state.z,
        full=recurrence.chunk_weights(size, v),
        last=recurrence.chunk_weights(q.shape[-2] % size, v),
        elu=fused,
    )
    if mask is None:
        return Causal(numerator, denominator, recurrence.unpack(lanes, z))
    after = None
    if return_state:
        after = recurrence.state_after(mask.sum(-1), elu_plus_one(k) if fused else k, v, state)
    return Causal(spread(mask, numerator), spread(mask, denominator[..., None]).squeeze(-1), after)
