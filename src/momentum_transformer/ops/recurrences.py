"""Which recurrence: linear or momentum, each with all of its forms under one roof.

`attention.py` runs whichever it is given. A new member of the family is one more class here.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import torch

from .bidirectional import key_weights
from .chunked import linear_chunked, momentum_chunked
from .quadratic import momentum_quadratic
from .recurrent import linear_step, momentum_recurrent, momentum_step
from .shapes import Tensor
from .state import LinearState, MomentumState

Backend = Literal["auto", "chunked", "quadratic", "recurrent"]
BACKENDS = ("auto", "chunked", "quadratic", "recurrent")


class Causal(NamedTuple):
    """What the causal forms return: y = numerator / denominator, and the state after the last token."""

    numerator: Tensor
    denominator: Tensor
    state: Any


class Recurrence(Protocol):
    """A causal recurrence over features q, k (..., n, d) and values v (..., n, e), and its non-causal weights."""

    def initial(self, k: Tensor, v: Tensor) -> Any: ...

    def causal(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        state: Any,
        mask: Tensor | None,
        backend: Backend,
        chunk_size: int,
    ) -> Causal: ...

    def key_weights(self, length: int, mask: Tensor | None) -> Tensor | None: ...


@dataclass(frozen=True)
class Momentum:
    """Heavy-ball momentum in the numerator (eq. 12, 13, 14)."""

    beta: Tensor
    gamma: Tensor

    def initial(self, k: Tensor, v: Tensor) -> MomentumState:
        s, z = Linear().initial(k, v)
        return MomentumState(m=s, s=s, z=z)

    def causal(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        state: MomentumState,
        mask: Tensor | None,
        backend: Backend,
        chunk_size: int,
    ) -> Causal:
        beta, gamma = self.beta, self.gamma
        if backend == "quadratic":
            return Causal(*momentum_quadratic(q, k, v, state, beta=beta, gamma=gamma, mask=mask))
        if backend == "recurrent":
            return Causal(*momentum_recurrent(q, k, v, state, beta=beta, gamma=gamma, mask=mask))
        if backend == "auto" and q.shape[-2] == 1 and mask is None:
            numerator, denominator, state = momentum_step(
                q.squeeze(-2), k.squeeze(-2), v.squeeze(-2), state, beta=beta, gamma=gamma
            )
            return Causal(numerator.unsqueeze(-2), denominator.unsqueeze(-1), state)
        return Causal(*momentum_chunked(q, k, v, state, beta=beta, gamma=gamma, mask=mask, chunk_size=chunk_size))

    def key_weights(self, length: int, mask: Tensor | None) -> Tensor:
        return key_weights(self.beta, self.gamma, length, mask=mask)


@dataclass(frozen=True)
class Linear:
    """No momentum (eq. 5, 7, 8). The reference forms are those of momentum at β = 0, γ = 1."""

    def initial(self, k: Tensor, v: Tensor) -> LinearState:
        lead, d, e = k.shape[:-2], k.shape[-1], v.shape[-1]
        return LinearState(s=v.new_zeros(*lead, d, e), z=v.new_zeros(*lead, d))

    def causal(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        state: LinearState,
        mask: Tensor | None,
        backend: Backend,
        chunk_size: int,
    ) -> Causal:
        if backend in ("quadratic", "recurrent"):
            momentum = Momentum(beta=v.new_zeros(1), gamma=v.new_ones(1))
            before = MomentumState(m=torch.zeros_like(state.s), s=state.s, z=state.z)
            numerator, denominator, after = momentum.causal(q, k, v, before, mask, backend, chunk_size)
            return Causal(numerator, denominator, LinearState(s=after.s, z=after.z))
        if backend == "auto" and q.shape[-2] == 1 and mask is None:
            numerator, denominator, state = linear_step(q.squeeze(-2), k.squeeze(-2), v.squeeze(-2), state)
            return Causal(numerator.unsqueeze(-2), denominator.unsqueeze(-1), state)
        return Causal(*linear_chunked(q, k, v, state, mask=mask, chunk_size=chunk_size))

    def key_weights(self, length: int, mask: Tensor | None) -> None:
        return None
