"""Tensors that have no memory to point at: those whose storage was freed, and zeros that PyTorch never writes down."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from momentum_transformer import RecurrentState, momentum_attention, recurrent_attention
from tests.family import needs_native

pytestmark = [needs_native, pytest.mark.kernels]
B, H, N, D, E = 2, 3, 5, 4, 6


def attended(tokens: int, name: str, change: Callable[[Tensor], Tensor]) -> Tensor:
    """With a state, after two calls like it: the second of one token is prepared. One argument is changed then."""
    given: dict[str, Any] = {
        "q": torch.rand(B, H, tokens, D),
        "k": torch.rand(B, H, tokens, D),
        "v": torch.rand(B, H, tokens, E),
    }
    given |= {"s": torch.rand(B, H, D, E)}
    for changed in (given, given, given | {name: change(given[name])}):
        q, k, v, s = changed.values()
        y, _ = recurrent_attention(q, k, v, alpha=0.5, state=RecurrentState(s), return_state=True)
    return y


def freed(x: Tensor) -> Tensor:
    """A tensor whose storage is gone, as sharded training leaves them behind."""
    x = x.clone()
    x.untyped_storage().resize_(0)
    return x


def zeros_without_memory(x: Tensor) -> Tensor:
    return torch._efficientzerotensor(x.shape)


@pytest.mark.parametrize(("name", "tokens"), [*itertools.product("qkv", (1, N)), ("s", 1)])
def test_a_tensor_without_memory_is_refused(name: str, tokens: int) -> None:
    with pytest.raises(ValueError, match="has no memory"):
        attended(tokens, name, freed)


@pytest.mark.parametrize("tokens", [1, N])
@pytest.mark.parametrize("name", ["q", "k", "v", "s"])
def test_zeros_that_take_no_memory_are_zeros(name: str, tokens: int) -> None:
    torch.manual_seed(0)
    found = attended(tokens, name, zeros_without_memory)
    torch.manual_seed(0)
    assert torch.equal(found, attended(tokens, name, torch.zeros_like))


def test_a_gradient_of_zeros_that_take_no_memory_is_zero() -> None:
    q = torch.rand(B, H, N, D).requires_grad_()
    for y in (recurrent_attention(q, q, q, alpha=0.5), momentum_attention(q, q, q, beta=0.5)):
        (dq,) = torch.autograd.grad(y, q, zeros_without_memory(y))
        assert not dq.any()
