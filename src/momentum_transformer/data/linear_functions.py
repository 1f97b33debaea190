"""Linear regression in context: x₁, y₁, …, xₙ, yₙ, x → y, where y = w · x + noise with a w for each sequence.

A token is d + 1 numbers: (x, 0), or zeros and y; where they are paired, the token of y has its x, too. x is standard
normal, w is normal with variance 1 / d, so that the error of always saying 0 is 1 + noise².
"""

import torch
from torch import Tensor

from .scored_sequences import ScoredSequences

TINY_RIDGE = 1e-9  # ridge without noise: far below the data, and enough to make the system solvable


def check_regression(*, dimension: int, points: int, noise: float) -> None:
    if dimension < 1 or points < 0 or noise < 0:
        raise ValueError(
            "regression needs a dimension of 1 or more, 0 points or more and noise that is not negative, "
            f"not {dimension}, {points} and {noise}"
        )


def regression_batch(
    rows: int,
    *,
    dimension: int,
    points: int,
    noise: float = 0.0,
    paired: bool = False,
    compare: bool = False,
    apart: bool = False,
    seed: int,
) -> ScoredSequences:
    """2 · points + 1 tokens; scored is every x, after 0, 1, …, `points` pairs.

    `compare` adds what least squares and one gradient step say; `apart` reports each number of pairs by itself.
    """
    check_regression(dimension=dimension, points=points, noise=noise)
    generator = torch.Generator().manual_seed(seed)
    w = torch.randn(rows, dimension, 1, generator=generator) / dimension**0.5
    x = torch.randn(rows, points + 1, dimension, generator=generator)
    y = (x @ w).squeeze(-1) + noise * torch.randn(rows, points + 1, generator=generator)
    length = 2 * points + 1
    inputs = torch.zeros(rows, length, dimension + 1)
    inputs[:, 0::2, :-1] = x
    inputs[:, 1::2, -1] = y[:, :-1]
    if paired:
        inputs[:, 1::2, :-1] = x[:, :-1]
    asked = torch.arange(length) % 2 == 0
    parts = {str(n): (torch.arange(length) == 2 * n).expand(rows, -1) for n in range(points + 1)} if apart else {}
    methods = {"least_squares": least_squares, "gradient_step": gradient_step} if compare else {}
    yardsticks = {name: _spread(method(x, y, noise)) for name, method in methods.items()}
    return ScoredSequences(inputs, _spread(y), asked.expand(rows, -1), parts, yardsticks)


def least_squares(x: Tensor, y: Tensor, noise: float = 0.0) -> Tensor:
    """(b, n): y at each x by least squares over the pairs before it, with a ridge of d · noise²: nothing does better.

    Without noise the ridge vanishes: the smallest w that fits, and the exact one from d pairs on.
    """
    xs, ys = x.double(), y.double()
    products = _before(xs[..., :, None] * xs[..., None, :])
    ridge = max(x.shape[-1] * noise**2, TINY_RIDGE) * torch.eye(x.shape[-1], dtype=torch.float64)
    w = torch.linalg.solve(products + ridge, _before(xs * ys[..., None]))
    return (w * xs).sum(-1).to(y.dtype)


def gradient_step(x: Tensor, y: Tensor, noise: float = 0.0) -> Tensor:
    """(b, n): y at each x after one gradient step from w = 0 on the mean of ½ (w · xᵢ - yᵢ)² over the pairs before it.

    The step is the one with the least mean error, n / (n + d + 1 + d · noise²).
    """
    xs, ys = x.double(), y.double()
    n = torch.arange(x.shape[1], dtype=torch.float64)[:, None]
    w = _before(xs * ys[..., None]) / (n + x.shape[-1] * (1 + noise**2) + 1)
    return (w * xs).sum(-1).to(y.dtype)


def _before(terms: Tensor) -> Tensor:
    """The sum of all terms of dimension 1 before each."""
    return terms.cumsum(1) - terms


def _spread(values: Tensor) -> Tensor:
    """One value for each x, at its token; zero at the tokens of y."""
    spread = torch.zeros(values.shape[0], 2 * values.shape[1] - 1)
    spread[:, 0::2] = values
    return spread
