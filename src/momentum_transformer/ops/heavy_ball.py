"""The optimisation behind the analogy: heavy-ball descent and its best momentum (eq. 10, Theorem 1)."""

from collections.abc import Callable

from .shapes import Float, Tensor


def heavy_ball_step(
    x: Float[Tensor, "d"],
    m: Float[Tensor, "d"],
    gradient: Callable[[Tensor], Tensor],
    *,
    beta: float,
    gamma: float,
) -> tuple[Float[Tensor, "d"], Float[Tensor, "d"]]:
    """m ← βm + ∇f(x); x ← x - γm (eq. 10). Momentum attention is this with ∇f = -φ(k)vᵀ."""
    m = beta * m + gradient(x)
    return x - gamma * m, m


def optimal_momentum(gamma: float, nu: float) -> float:
    """β = (1 - √(γν))² (Theorem 1): the momentum at which heavy-ball descent converges fastest.

    Args:
        gamma: step size γ ≤ 1/L, with L the largest eigenvalue of the quadratic.
        nu: its smallest eigenvalue.

    Returns:
        The momentum.

    Examples:
        >>> optimal_momentum(gamma=1.0, nu=0.25)
        0.25
    """
    if not (gamma > 0 and 0 <= gamma * nu <= 1):
        raise ValueError(f"optimal_momentum needs gamma > 0 and 0 <= gamma * nu <= 1, not gamma={gamma}, nu={nu}")
    return (1.0 - (gamma * nu) ** 0.5) ** 2
