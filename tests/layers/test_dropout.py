"""Our dropout is dropout."""

import pytest
import torch

from momentum_transformer.layers.dropout import LEVELS, Dropout


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_the_rate_is_kept_and_so_is_the_mean(rate: float) -> None:
    torch.manual_seed(0)
    layer, x = Dropout(rate), torch.ones(1001, 999, dtype=torch.float64, requires_grad=True)
    y = layer(x)
    dropped = y == 0
    assert abs(dropped.double().mean() - rate) < 5 * (rate * (1 - rate) / x.numel()) ** 0.5 + 1 / LEVELS
    assert torch.allclose(y[~dropped], torch.tensor(LEVELS / (LEVELS - round(rate * LEVELS))).double())
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient, y)
    for axis in (0, 1):  # no row and no column stands out; nor does the place of 16 bits in their word
        assert (dropped.double().mean(axis) - rate).abs().max() < 6 * (rate * (1 - rate) / 999) ** 0.5
    for offset in range(4):
        assert abs(dropped.flatten()[offset::4].double().mean() - rate) < 3e-3
    neighbours = (dropped[:, 1:] & dropped[:, :-1]).double().mean()
    assert abs(neighbours - rate**2) < 3e-3


def test_evaluation_and_rate_zero_leave_x_alone() -> None:
    x = torch.randn(3, 5)
    assert Dropout(0.0)(x) is x
    assert Dropout(0.5).eval()(x) is x


def test_the_seed_decides() -> None:
    layer, x = Dropout(0.5), torch.randn(7, 3)
    torch.manual_seed(3)
    first, second = layer(x), layer(x)
    torch.manual_seed(3)
    assert torch.equal(layer(x), first)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("rate", [-0.1, 1.0, float("nan")])
def test_impossible_rates_are_refused(rate: float) -> None:
    with pytest.raises(ValueError, match=r"dropout must be in \[0, 1\), not"):
        Dropout(rate)
