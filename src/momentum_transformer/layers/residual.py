"""How layers connect: small frozen objects, passed to the one block.

A rule takes x, the layer's update of it, and what it remembered at the layer before (None at the first), and
returns the new x and what to remember. The memory runs through depth, within one token: decoding needs none.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from ..ops.adaptive import RULES, check_delta
from ..ops.checks import MOMENTUM, STEP_SIZE, check_choice, check_number
from ..ops.connection import difference_connection, momentum_connection


class Residual(Protocol):
    def __call__(self, x: Tensor, update: Tensor, memory: Any) -> tuple[Tensor, Any]: ...


@dataclass(frozen=True)
class PlainResidual:
    """x + update (eq. 4).

    Examples:
        >>> encoder = Encoder(2, 16, 2, residual=PlainResidual())
    """

    def __call__(self, x: Tensor, update: Tensor, memory: None) -> tuple[Tensor, None]:
        return x + update, None


@dataclass(frozen=True)
class MomentumResidual:
    """The momentum connection (eq. 15) in velocity form, with Table 1's step size.

    Args:
        beta: momentum in [0, 1).
        gamma: step size.

    Examples:
        >>> encoder = Encoder(2, 16, 2, residual=MomentumResidual(beta=0.9))
    """

    beta: float
    gamma: float = 1.0

    def __post_init__(self) -> None:
        check_number("beta", self.beta, MOMENTUM)
        check_number("gamma", self.gamma, STEP_SIZE)

    def __call__(self, x: Tensor, update: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor]:
        return momentum_connection(x, update, memory, beta=self.beta, gamma=self.gamma)


@dataclass(frozen=True)
class DifferenceResidual:
    """The momentum connection (eq. 15) in difference form, as it is printed."""

    beta: float
    gamma: float = 1.0

    def __post_init__(self) -> None:
        check_number("beta", self.beta, MOMENTUM)
        check_number("gamma", self.gamma, STEP_SIZE)

    def __call__(self, x: Tensor, update: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor]:
        return difference_connection(x, update, memory, beta=self.beta, gamma=self.gamma)


@dataclass(frozen=True)
class AdaptiveMomentumResidual:
    """The momentum connection with β from the updates (eq. 18).

    Args:
        gamma: step size.
        delta: β is 1 - δ at most.
        rule: how β comes from the updates, one of `ops.adaptive.RULES`.

    Examples:
        >>> encoder = Encoder(2, 16, 2, residual=AdaptiveMomentumResidual())
    """

    gamma: float = 1.0
    delta: float = 1e-3
    rule: str = "paper"

    def __post_init__(self) -> None:
        check_number("gamma", self.gamma, STEP_SIZE)
        check_delta(self.delta)
        check_choice("rule", self.rule, tuple(RULES))

    def __call__(
        self, x: Tensor, update: Tensor, memory: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        if memory is None:  # the first layer has no momentum
            x, velocity = momentum_connection(x, update, None, beta=0.0, gamma=self.gamma)
        else:
            velocity, previous = memory
            beta = RULES[self.rule](update, previous, velocity, self.delta)
            x, velocity = momentum_connection(x, update, velocity, beta=beta, gamma=self.gamma)
        return x, (velocity, update)
