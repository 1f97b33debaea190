"""One number at every token, from the past only."""

import pytest
import torch

from momentum_transformer import Encoder
from momentum_transformer.models.sequence_regressor import SequenceRegressor


@pytest.mark.parametrize("positions", [True, False])
def test_a_number_depends_on_no_later_token(positions: bool) -> None:
    torch.manual_seed(0)
    model = SequenceRegressor(3, Encoder(2, 8, 2), positions=positions).double().eval()
    inputs = torch.randn(2, 7, 3, dtype=torch.float64)
    before = model(inputs)
    assert before.shape == (2, 7)
    inputs[:, 4:] += 1
    after = model(inputs)
    assert torch.allclose(after[:, :4], before[:, :4], atol=1e-12)
    assert not torch.allclose(after[:, 4:], before[:, 4:])


def test_it_must_be_causal() -> None:
    with pytest.raises(ValueError, match="causal=True"):
        SequenceRegressor(3, Encoder(1, 8, 2, causal=False))
