"""What is kept between calls stays out of traces."""

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from momentum_transformer import linear_attention, momentum_attention


@pytest.mark.parametrize(
    "options", [{}, {"backend": "chunked"}, {"causal": False}, {"weighting": "terminal"}], ids=str
)
def test_shapes_can_be_traced_after_a_real_call_and_real_calls_made_after_that(options: dict[str, Any]) -> None:
    q = torch.randn(2, 3, 20, 8)
    expected = momentum_attention(q, q, q, beta=0.7, gamma=0.3, **options)
    with FakeTensorMode():
        fake = torch.randn(2, 3, 20, 8)
        assert momentum_attention(fake, fake, fake, beta=0.7, gamma=0.3, **options).shape == q.shape
        assert linear_attention(fake, fake, fake).shape == q.shape
    assert torch.equal(momentum_attention(q, q, q, beta=0.7, gamma=0.3, **options), expected)
