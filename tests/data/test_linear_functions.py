"""Regression in context: the tokens are what they claim, and so are both yardsticks."""

import numpy as np
import pytest
import torch

from momentum_transformer.data.linear_functions import gradient_step, least_squares, regression_batch


def test_tokens_are_x_and_y_in_turn_and_y_is_linear_in_x() -> None:
    batch = regression_batch(20, dimension=3, points=8, apart=True, seed=0)
    assert batch.inputs.shape == (20, 17, 4)
    x, y = batch.inputs[:, 0::2, :3], batch.targets[:, 0::2]
    assert not batch.inputs[:, 0::2, 3].any()
    assert not batch.inputs[:, 1::2, :3].any()
    assert torch.equal(batch.inputs[:, 1::2, 3], y[:, :-1])
    for row in range(20):
        w, *_ = np.linalg.lstsq(x[row].double().numpy(), y[row].double().numpy())
        np.testing.assert_allclose(x[row].numpy() @ w, y[row].numpy(), atol=1e-5)
    assert batch.scored[0].nonzero().flatten().tolist() == list(range(0, 17, 2))
    assert torch.equal(torch.stack(list(batch.parts.values())).sum(0), batch.scored.int())
    assert list(batch.parts) == [str(n) for n in range(9)]


def test_where_they_are_paired_the_token_of_y_has_its_x() -> None:
    apart, paired = (regression_batch(4, dimension=3, points=5, paired=value, seed=0) for value in (False, True))
    assert torch.equal(paired.inputs[:, 1::2, :3], paired.inputs[:, 0:-1:2, :3])
    assert torch.equal(paired.inputs[:, 0::2], apart.inputs[:, 0::2])
    assert torch.equal(paired.inputs[..., 3], apart.inputs[..., 3])


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_least_squares_is_that_of_a_loop(noise: float) -> None:
    batch = regression_batch(10, dimension=3, points=6, noise=noise, compare=True, seed=1)
    x, y = batch.inputs[:, 0::2, :3].double().numpy(), batch.targets[:, 0::2].double().numpy()
    said = batch.yardsticks["least_squares"][:, 0::2].numpy()
    for row in range(10):
        for n in range(7):
            past, values = x[row, :n], y[row, :n]
            smallest = np.linalg.pinv(past) @ values if n else np.zeros(3)
            ridge = np.linalg.solve(past.T @ past + (3 * noise**2 + 1e-9) * np.eye(3), past.T @ values)
            w = ridge if noise else smallest
            np.testing.assert_allclose(said[row, n], x[row, n] @ w, atol=1e-3)


def test_without_noise_least_squares_is_exact_from_d_pairs_on() -> None:
    batch = regression_batch(50, dimension=4, points=8, compare=True, seed=2)
    error = (batch.yardsticks["least_squares"] - batch.targets)[:, 0::2].square().mean(0)
    assert (error[5:] < 1e-6).all()
    assert (error[:3] > 0.1).all()


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_the_gradient_step_is_one_and_no_other_size_does_better(noise: float) -> None:
    batch = regression_batch(20_000, dimension=3, points=5, noise=noise, seed=3)
    x, y = batch.inputs[:, 0::2, :3].double(), batch.targets[:, 0::2].double()
    n = 5
    w = torch.zeros(len(x), 3, dtype=torch.float64, requires_grad=True)
    loss = ((x[:, :n] @ w[..., None]).squeeze(-1) - y[:, :n]).square().mean(1).sum() / 2
    (gradient,) = torch.autograd.grad(loss, w)
    errors = {size: float(((-size * gradient * x[:, n]).sum(-1) - y[:, n]).square().mean()) for size in STEPS}
    best = n / (n + 4 + 3 * noise**2)
    said = gradient_step(x, y, noise)[:, n]
    torch.testing.assert_close(said, (-best * gradient * x[:, n]).sum(-1))
    assert float((said - y[:, n]).square().mean()) <= min(errors.values()) + 0.01
    assert abs(min(errors, key=errors.__getitem__) - best) < 0.08


STEPS = [i / 50 for i in range(1, 60)]


def test_yardsticks_see_the_past_only() -> None:
    batch = regression_batch(2, dimension=3, points=6, seed=4)
    x, y = batch.inputs[:, 0::2, :3], batch.targets[:, 0::2].clone()
    before = least_squares(x, y), gradient_step(x, y)
    y[:, 4:] += 100
    for old, new in zip(before, (least_squares(x, y), gradient_step(x, y)), strict=True):
        assert torch.equal(old[:, :5], new[:, :5])
        assert not torch.equal(old[:, 5:], new[:, 5:])


def test_the_seed_decides_everything_and_impossible_sizes_are_refused() -> None:
    first, again, other = (regression_batch(2, dimension=2, points=3, seed=seed).inputs for seed in (5, 5, 6))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    with pytest.raises(ValueError, match=r"not 0, 3 and 0\.0"):
        regression_batch(2, dimension=0, points=3, seed=0)
