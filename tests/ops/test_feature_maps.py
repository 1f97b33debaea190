"""elu + 1 with all its digits."""

import math

import pytest
import torch

from momentum_transformer import elu_plus_one


@pytest.mark.parametrize("x", [-80.0, -20.0, -1.0, 0.0, 1e-9, 3.0])
def test_elu_plus_one_keeps_relative_precision_far_below_zero(x: float) -> None:
    exact = x + 1 if x > 0 else math.exp(x)
    assert elu_plus_one(torch.tensor(x)).item() == pytest.approx(exact, rel=1e-6)


def test_elu_plus_one_has_right_derivatives_and_slope_one_at_zero() -> None:
    x = torch.tensor([-3.0, -0.5, 0.4, 2.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(elu_plus_one, (x,))
    assert torch.autograd.gradgradcheck(elu_plus_one, (x,))
    zero = torch.zeros(1, requires_grad=True)
    assert torch.autograd.grad(elu_plus_one(zero), zero)[0].item() == 1
