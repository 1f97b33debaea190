"""The momentum connection between layers (eq. 15): heavy ball over depth instead of over time.

Layer ℓ proposes an `update` of x (its attention output). A plain residual adds it; the momentum connection also
keeps some of the motion of the layers before.
"""

from .checks import check_number
from .shapes import Float, Tensor


def momentum_connection(
    x: Float[Tensor, "*b d"],
    update: Float[Tensor, "*b d"],
    velocity: Float[Tensor, "*b d"] | None,
    *,
    beta: float | Tensor,
    gamma: float | Tensor,
) -> tuple[Float[Tensor, "*b d"], Float[Tensor, "*b d"]]:
    """Velocity form, with the step size of Table 1: v ← βv + update; x ← x + γv. Returns (x, v).

    The first layer has no velocity: pass None. β may be one value a token, shape (..., 1).
    """
    _check(beta, gamma)
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
    """Difference form, as eq. 15 is printed: x + γ·update + β(x - previous). Returns it and x, the next `previous`.

    `previous` is what the layer before had for x. Equal to the velocity form where nothing but the connection
    changes x between the layers; otherwise it also carries on what feed-forward and normalisation did.
    """
    _check(beta, gamma)
    moved = x + gamma * update
    return (moved if previous is None else moved + beta * (x - previous)), x


def _check(beta: float | Tensor, gamma: float | Tensor) -> None:
    for name, value, below_one in (("beta", beta, True), ("gamma", gamma, False)):
        if not isinstance(value, Tensor):
            check_number(name, value, below_one=below_one)
