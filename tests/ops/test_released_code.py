"""What the authors' released code computes, kept for reproduction: terminal weights, no denominator."""

import pytest
import torch

from momentum_transformer import linear_attention, momentum_attention
from momentum_transformer.ops.feature_maps import elu_plus_one
from tests.family import masks

from .cases import assert_all_close, gradients, inputs


def released_causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, beta: float, gamma: float) -> torch.Tensor:
    """Keys weighed by the distance to the end; the normaliser from keys without weight."""
    n = q.shape[2]
    q, k = elu_plus_one(q), elu_plus_one(k)
    weight = torch.tensor([gamma * (1 - beta ** (n - j)) / (1 - beta) for j in range(n)], dtype=q.dtype)
    z = 1 / ((q * k.cumsum(2)).sum(-1, keepdim=True) + 1e-6)
    scores = (q @ (k * weight[:, None]).transpose(-1, -2)).tril()
    return scores @ v * z


def test_terminal_weighting_is_the_released_training_code() -> None:
    x = inputs()
    y = momentum_attention(x.q, x.k, x.v, beta=0.6, gamma=0.9, weighting="terminal", chunk_size=8)
    wanted = released_causal(x.q, x.k, x.v, 0.6, 0.9)
    assert_all_close(
        [y, *gradients([y], [x.q, x.k, x.v])],
        [wanted, *gradients([wanted], [x.q, x.k, x.v])],
        ["y", "dq", "dk", "dv"],
        1e-12,
    )


def test_terminal_weighting_is_almost_rescaled_linear_attention() -> None:
    """The finding: at the copy task's length and values, all but the last keys weigh the constant γ/(1 - β)."""
    x = inputs(128)
    y = momentum_attention(x.q, x.k, x.v, beta=0.1, gamma=0.6, weighting="terminal")
    rescaled = linear_attention(x.q, x.k, x.v) * (0.6 / 0.9)
    assert torch.allclose(y[:, :, :120], rescaled[:, :, :120], rtol=1e-7)
    assert not torch.allclose(y[:, :, 127], rescaled[:, :, 127], rtol=1e-3)


def test_relative_weighting_is_another_function() -> None:
    x = inputs(783)
    options = {"beta": 0.6, "gamma": 0.9}
    terminal = momentum_attention(x.q, x.k, x.v, weighting="terminal", **options)
    relative = momentum_attention(x.q, x.k, x.v, **options)
    assert (terminal - relative).norm() > 0.05 * relative.norm()


def test_terminal_weighting_counts_padding_and_relative_does_not() -> None:
    x = inputs()
    padded = masks()["right padding"]
    options = {"beta": 0.9, "causal": False, "key_mask": padded}
    relative = momentum_attention(x.q, x.k, x.v, **options)
    terminal = momentum_attention(x.q, x.k, x.v, weighting="terminal", **options)
    assert torch.allclose(relative[0], terminal[0], rtol=1e-12)  # no padding in the first sample
    assert not torch.allclose(relative[1], terminal[1], rtol=1e-3)


def test_terminal_weighting_has_no_state() -> None:
    x = inputs()
    with pytest.raises(ValueError, match="terminal"):
        momentum_attention(x.q, x.k, x.v, beta=0.5, weighting="terminal", return_state=True)


@pytest.mark.parametrize("causal", [True, False])
def test_without_the_denominator_only_the_numerator_is_left(causal: bool) -> None:
    x = inputs()
    y = momentum_attention(x.q, x.k, x.v, beta=0.6, gamma=0.9, causal=causal, normalize=False)
    whole = momentum_attention(x.q, x.k, x.v, beta=0.6, gamma=0.9, causal=causal, eps=0.0)
    features = elu_plus_one(x.k).cumsum(2) if causal else elu_plus_one(x.k).sum(2, keepdim=True)
    denominator = (elu_plus_one(x.q) * features).sum(-1, keepdim=True)
    assert_all_close([y], [whole * denominator], ["y"], 1e-12)
