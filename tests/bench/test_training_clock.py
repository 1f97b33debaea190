"""The clock of bench/training_step.py: it sees attention forward and backward, and changes nothing."""

from typing import Any

import pytest
import torch

from momentum_transformer import recurrent_attention
from momentum_transformer.bench import training_step as training


@pytest.fixture
def clock() -> training.Clock:
    """Every look at it is a second later."""
    seconds = iter(range(1000))
    made = training.Clock()
    made.now = lambda: float(next(seconds))
    made.begin()
    return made


def test_attention_is_timed_forward_and_backward(clock: training.Clock) -> None:
    q, k, v = (torch.randn(1, 2, 6, 4, requires_grad=True) for _ in range(3))
    decay = torch.rand(1, 2, 6, requires_grad=True)
    leaves = (q, k, v, decay)

    def attend(door: Any) -> Any:
        return door(q, k, v, alpha=decay, delta=decay, eta=0.5)

    y = attend(clock.around_attention(recurrent_attention))
    assert clock.steps == [{"bare": 0.0, "attention": 1.0}]
    found = torch.autograd.grad(y.sin().sum(), leaves)
    assert clock.steps == [{"bare": 0.0, "attention": 2.0}]
    right = torch.autograd.grad(attend(recurrent_attention).sin().sum(), leaves)
    for a, b in zip(found, right, strict=True):
        torch.testing.assert_close(a, b)


def test_a_tensor_that_is_given_twice_stays_one(clock: training.Clock) -> None:
    seen = []

    def door(*tensors: torch.Tensor, delta: torch.Tensor, eta: float) -> torch.Tensor:
        seen.extend([tensors[0] is delta, eta == 0.5])
        return tensors[0] + delta

    x = torch.ones(3, requires_grad=True)
    clock.around_attention(door)(x, delta=x, eta=0.5).sum().backward()
    assert seen == [True, True]
    assert torch.equal(x.grad, torch.full((3,), 2.0))
