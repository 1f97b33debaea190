"""The one attention layer with keys and values of its own choosing."""

import pytest
import torch

from momentum_transformer import (
    LinformerAttention,
    PerformerAttention,
    ReformerAttention,
)
from momentum_transformer.layers import Attention, HighwayFeedForward, Mixer
from tests.family import mixers

MIXERS: dict[str, Mixer] = {
    **mixers("softmax", "linear", "momentum"),
    "performer": PerformerAttention(features=32),
    "linformer": LinformerAttention(length=9, features=4),
}


def layer(mixer: str) -> Attention:
    torch.manual_seed(0)
    return Attention(16, 2, MIXERS[mixer], causal=False).double().eval()


def tokens(b: int, n: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(b, n, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("mixer", MIXERS)
def test_keys_are_x_and_values_the_keys_unless_given(mixer: str) -> None:
    attention, x, keys = layer(mixer), tokens(2, 5), tokens(2, 7, seed=2)
    assert torch.equal(attention(x)[0], attention(x, keys=x, values=x)[0])
    assert torch.equal(attention(x, keys=keys)[0], attention(x, keys=keys, values=keys)[0])
    assert not torch.allclose(attention(x, keys=keys)[0], attention(x, keys=keys, values=keys.flip(1))[0])


@pytest.mark.parametrize("n", [5, 7])
@pytest.mark.parametrize("mixer", MIXERS)
def test_cross_attention_hides_masked_keys_and_no_query(mixer: str, n: int) -> None:
    """Also at n = 7, where queries and keys are equally many."""
    attention, x, keys = layer(mixer), tokens(2, n), tokens(2, 7, seed=2)
    mask = torch.arange(7) < torch.tensor([[7], [3]])
    y, _ = attention(x, keys=keys, key_mask=mask)
    for row, length in enumerate((7, 3)):
        alone, _ = attention(x[row : row + 1], keys=keys[row : row + 1, :length])
        assert torch.allclose(y[row], alone[0], atol=1e-12)


@pytest.mark.parametrize("mixer", MIXERS)
def test_positions_serve_every_sample_of_the_values(mixer: str) -> None:
    attention, places, values = layer(mixer), tokens(1, 5), tokens(3, 5, seed=2)
    mask = torch.arange(5) < torch.tensor([[5], [2], [4]])
    shared, _ = attention(places, values=values, key_mask=mask)
    repeated, _ = attention(places.expand(3, -1, -1), values=values, key_mask=mask)
    assert torch.allclose(shared, repeated, atol=1e-14)


def test_a_mixer_without_keys_cannot_see_other_tokens() -> None:
    attention = Attention(16, 2, ReformerAttention(), causal=False).double()
    with pytest.raises(ValueError, match="no keys apart from its queries"):
        attention(tokens(1, 5), keys=tokens(1, 7))


def test_highway_is_its_formula() -> None:
    torch.manual_seed(0)
    network, x = HighwayFeedForward(16, 24, dropout=0.0).double(), tokens(2, 5)
    change, gate = ((part.leave(part.enter(x).clamp(min=0))) for part in (network.change, network.gate))
    g = 1 / (1 + torch.exp(-gate))
    assert torch.allclose(network(x), x * g + change * (1 - g), atol=1e-12)
