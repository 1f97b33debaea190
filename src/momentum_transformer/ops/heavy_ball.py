"""The optimisation behind the analogy: heavy-ball descent and its best momentum (eq. 10, 16, Theorem 1)."""

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
    """m ← βm + ∇f(x); x ← x - γm (eq. 10). Momentum attention is this with ∇f = -φ(k)vᵀ.

    Args:
        x: where the descent is.
        m: its momentum; zeros before the first step.
        gradient: ∇f, a function of x.
        beta: momentum.
        gamma: step size.

    Returns:
        The pair (x, m) after the step.

    Examples:
        >>> heavy_ball_step(torch.ones(1), torch.zeros(1), lambda x: 2 * x, beta=0.5, gamma=0.25)
        (tensor([0.5000]), tensor([2.]))
    """
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
