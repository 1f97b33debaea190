"""The momentum connection, adaptive momentum, and the optimisation theory behind them."""

import pytest
import torch

from momentum_transformer import adaptive_momentum, momentum_connection, optimal_momentum
from momentum_transformer.ops.adaptive import RULES
from momentum_transformer.ops.connection import difference_connection
from momentum_transformer.ops.heavy_ball import heavy_ball_step


def updates(count: int = 6) -> torch.Tensor:
    return torch.randn(count, 2, 5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_velocity_form_unrolls_to_a_decaying_sum_of_updates() -> None:
    g = updates()
    x = start = torch.randn(2, 5, 7, dtype=torch.float64)
    velocity = None
    for update in g:
        x, velocity = momentum_connection(x, update, velocity, beta=0.3, gamma=0.9)
    total = torch.zeros_like(start)
    for last in range(len(g)):
        total += 0.9 * sum(0.3 ** (last - i) * g[i] for i in range(last + 1))
    assert torch.allclose(x, start + total)


def test_difference_form_equals_velocity_form_where_only_the_connection_moves_x() -> None:
    x = y = torch.randn(2, 5, 7, dtype=torch.float64)
    velocity = previous = None
    for update in updates():
        x, velocity = momentum_connection(x, update, velocity, beta=0.6, gamma=0.8)
        y, previous = difference_connection(y, update, previous, beta=0.6, gamma=0.8)
        assert torch.allclose(x, y)


def test_no_momentum_is_a_plain_residual() -> None:
    x, update = updates(2)
    assert torch.equal(momentum_connection(x, update, update, beta=0.0, gamma=1.0)[0], x + update)
    assert torch.equal(difference_connection(x, update, update, beta=0.0)[0], x + update)


@pytest.mark.parametrize("connection", [momentum_connection, difference_connection])
def test_connections_refuse_coefficients_out_of_range(connection: object) -> None:
    x, update = updates(2)
    with pytest.raises(ValueError, match=r"beta must be in \[0, 1\), not 1.0"):
        connection(x, update, None, beta=1.0, gamma=1.0)
    with pytest.raises(ValueError, match=r"gamma must be positive and finite, not 0\.0"):
        connection(x, update, None, beta=0.5, gamma=0.0)


def test_adaptive_momentum_is_the_papers_formula_per_token() -> None:
    previous, g = updates(2)
    beta = adaptive_momentum(g, previous, delta=1e-3)
    assert beta.shape == (2, 5, 1)
    for sample in range(2):
        for token in range(5):
            ratio = (g - previous)[sample, token].norm() / previous[sample, token].norm()
            expected = min(max((1 - ratio.sqrt().item()) ** 2, 0.0), 1 - 1e-3)
            assert beta[sample, token].item() == pytest.approx(expected, rel=1e-12)


def test_adaptive_momentum_stays_in_range() -> None:
    previous = torch.ones(3, 4)
    beta = adaptive_momentum(torch.stack([previous[0], 100 * previous[0], -previous[0]]), previous, delta=0.01)
    assert beta.flatten().tolist() == pytest.approx([0.99, 0.99, (1 - 2**0.5) ** 2])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("rule", RULES)
def test_rules_are_finite_with_finite_gradients_at_zero_norms(rule: str, dtype: torch.dtype) -> None:
    zero, one, tiny = torch.zeros(4), torch.ones(4), torch.full((4,), 1e-22)
    cases = [(a, b, c) for a in (zero, one, tiny) for b in (zero, one, tiny) for c in (zero, one, tiny)]
    g, previous, velocity = (torch.stack(column).to(dtype).requires_grad_() for column in zip(*cases, strict=True))
    beta = RULES[rule](g, previous, velocity, 1e-3)
    assert beta.dtype == dtype
    assert ((beta >= 0) & (beta.double() <= 1 - 1e-3)).all()
    found = torch.autograd.grad(beta.sum(), (g, previous, velocity), allow_unused=True)
    assert all(grad is None or torch.isfinite(grad).all() for grad in found)


@pytest.mark.parametrize("rule", RULES)
def test_rules_propagate_nan(rule: str) -> None:
    one = torch.ones(1, 4)
    assert RULES[rule](one * torch.nan, one, one, 1e-3).isnan().all()


def test_connections_refuse_what_would_broadcast() -> None:
    x = torch.zeros(2, 5, 7)
    with pytest.raises(ValueError, match=r"update must have the shape of x, \(2, 5, 7\), not \(2, 5, 1\)"):
        momentum_connection(x, x[..., :1], None, beta=0.5, gamma=1.0)
    with pytest.raises(ValueError, match="velocity must be on cpu like x, not meta"):
        momentum_connection(x, x, x.to("meta"), beta=0.5, gamma=1.0)
    with pytest.raises(ValueError, match=r"beta must be in \[0, 1\), not 1.5"):
        momentum_connection(x, x, x, beta=torch.tensor(1.5), gamma=1.0)
    with pytest.raises(ValueError, match=r"previous_update must have the shape of update"):
        adaptive_momentum(x, x[:1])


def test_conjugate_gradient_rules_are_their_formulas() -> None:
    previous, g, velocity = (tensor[0, 0] for tensor in updates(3))
    expected = {
        "released": (1 - ((g - previous).norm() / velocity.norm()).sqrt()) ** 2,
        "fletcher-reeves": g @ g / (previous @ previous),
        "polak-ribiere": g @ (g - previous) / (previous @ previous),
        "hestenes-stiefel": g @ (g - previous) / (-velocity @ (g - previous)),
        "dai-yuan": g @ g / (-velocity @ (g - previous)),
    }
    for name, value in expected.items():
        assert RULES[name](g, previous, velocity, 0.0).item() == pytest.approx(value.clamp(0, 1).item()), name


def test_released_rule_is_the_papers_at_the_second_layer_only() -> None:
    first, second, third = updates(3)
    assert torch.equal(RULES["released"](second, first, first, 1e-3), adaptive_momentum(second, first))
    velocity = 0.5 * first + second
    assert not torch.allclose(RULES["released"](third, second, velocity, 1e-3), adaptive_momentum(third, second))


def test_delta_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match=r"delta must be in \[0, 1\], not 2.0"):
        adaptive_momentum(*updates(2), delta=2.0)


def random_quadratic(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A positive definite with smallest eigenvalue 0.05 and largest 1, and b."""
    generator = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(8, 8, dtype=torch.float64, generator=generator))[0]
    eigenvalues = torch.linspace(0.05, 1, 8, dtype=torch.float64)
    return basis @ torch.diag(eigenvalues) @ basis.T, torch.randn(8, dtype=torch.float64, generator=generator)


def distance_after(steps: int, beta: float, gamma: float, seed: int) -> float:
    A, b = random_quadratic(seed)
    x, m = torch.zeros_like(b), torch.zeros_like(b)
    for _ in range(steps):
        x, m = heavy_ball_step(x, m, lambda x: A @ x + b, beta=beta, gamma=gamma)
    return (x + torch.linalg.solve(A, b)).norm().item()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("gamma", [1.0, 0.5])
def test_theorem_1_the_optimal_momentum_converges_fastest(seed: int, gamma: float) -> None:
    best = optimal_momentum(gamma, 0.05)
    at_best = distance_after(100, best, gamma, seed)  # later, rounding hides the rate
    for other in (0.0, best - 0.15, best - 0.05, best + 0.05, best + 0.15):
        assert at_best < distance_after(100, other, gamma, seed)
    rate = (at_best / distance_after(60, best, gamma, seed)) ** (1 / 40)
    assert rate == pytest.approx(1 - (gamma * 0.05) ** 0.5, abs=0.03)


def estimates_of_nu(beta: float, seed: int) -> list[float]:
    """‖∇f(xᵏ) - ∇f(xᵏ⁻¹)‖ / ‖xᵏ - xᵏ⁻¹‖ along heavy-ball descent."""
    A, b = random_quadratic(seed)
    x, m = torch.zeros_like(b), torch.zeros_like(b)
    estimates = []
    for _ in range(200):
        before = x
        x, m = heavy_ball_step(x, m, lambda x: A @ x + b, beta=beta, gamma=1.0)
        estimates.append(((A @ (x - before)).norm() / (x - before).norm()).item())
    return estimates


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_proposition_1_gradient_differences_reveal_the_smallest_eigenvalue(seed: int, beta: float) -> None:
    assert estimates_of_nu(beta, seed)[-1] == pytest.approx(0.05, rel=1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_proposition_1_fails_above_the_optimal_momentum(seed: int) -> None:
    """Above it every mode shrinks by √β a step, none comes to dominate, and the ratio never settles."""
    assert optimal_momentum(1.0, 0.05) < 0.9
    assert min(estimates_of_nu(0.9, seed)[100:]) > 1.5 * 0.05


def test_optimal_momentum_is_refused_beyond_the_stable_step_size() -> None:
    assert optimal_momentum(1.0, 0.25) == 0.25
    with pytest.raises(ValueError, match=r"gamma=3.0, nu=0.5"):
        optimal_momentum(3.0, 0.5)
