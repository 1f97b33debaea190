"""The momentum connection between layers (eq. 15): heavy ball over depth instead of over time.

Layer ℓ proposes an `update` of x (its attention output). A plain residual adds it; the momentum connection also
keeps some of the motion of the layers before.
"""

from .checks import MOMENTUM, STEP_SIZE, check_like, check_number, check_range
from .shapes import Float, Tensor


def momentum_connection(
    x: Float[Tensor, "*b d"],
    update: Float[Tensor, "*b d"],
    velocity: Float[Tensor, "*b d"] | None,
    *,
    beta: float | Tensor,
    gamma: float | Tensor,
) -> tuple[Float[Tensor, "*b d"], Float[Tensor, "*b d"]]:
    """Velocity form, with the step size of Table 1: v ← βv + update; x ← x + γv.

    Args:
        x: the tokens.
        update: what the layer proposes to add to them.
        velocity: v after the layer before; None in the first one.
        beta: a number, or one value a token, shape (..., 1).
        gamma: step size, likewise.

    Returns:
        The pair (x, v).

    Examples:
        >>> x, velocity = momentum_connection(torch.zeros(2, 4), torch.ones(2, 4), None, beta=0.5, gamma=1.0)
    """
    # Deviation: Table 1's step size γ, which eq. 15 lacks; it scales the current update too.
    _check(x, beta, gamma, {"update": update, "velocity": velocity})
    velocity = update if velocity is None else beta * velocity + update
    return x + gamma * velocity, velocity


def difference_connection(
    x: Float[Tensor, "*b d"],
    update: Float[Tensor, "*b d"],
    previous: Float[Tensor, "*b d"] | None,
    *,
    beta: float | Tensor,
    gamma: float | Tensor = 1.0,
) -> tuple[Float[Tensor, "*b d"], Float[Tensor, "*b d"]]:
    """Difference form, as eq. 15 is printed: x + γ·update + β(x - previous).

    Equal to the velocity form where nothing but the connection changes x between the layers; otherwise it also carries
    on what feed-forward and normalisation did.

    Args:
        x: the tokens.
        update: what the layer proposes to add to them.
        previous: x as the layer before had it; None in the first one.
        beta: a number, or one value a token, shape (..., 1).
        gamma: step size, likewise.

    Returns:
        The pair of the new x, and of x as it was: the next `previous`.

    Examples:
        >>> x, previous = difference_connection(torch.zeros(2, 4), torch.ones(2, 4), None, beta=0.5)
    """
    # Deviation: printed as X - T₋₁(X), which is zero read literally; heavy ball needs the layer's previous input.
    _check(x, beta, gamma, {"update": update, "previous": previous})
    moved = x + gamma * update
    return (moved if previous is None else moved + beta * (x - previous)), x


def _check(x: Tensor, beta: float | Tensor, gamma: float | Tensor, others: dict[str, Tensor | None]) -> None:
    for name, value, allowed in (("beta", beta, MOMENTUM), ("gamma", gamma, STEP_SIZE)):
        if isinstance(value, Tensor):
            check_range(name, value, allowed)
        else:
            check_number(name, value, allowed)
    for name, tensor in others.items():
        if tensor is not None:
            check_like(name, tensor, x, "x")
