"""The mixture of logistics: right to the last digit, a distribution, finite everywhere, sampled as it is scored."""

import math

import pytest
import torch
from torch import Tensor

from momentum_transformer.models.logistic_mixture import mixture_log_likelihood, sample_mixture

EXTREMES = (-1e30, -1e6, -300.0, -30.0, -7.0, -1.0, 0.0, 0.3, 1.0, 7.0, 30.0, 300.0, 1e6)


def by_hand(pixel: int, logits: list[float], means: list[float], log_scales: list[float]) -> float:
    """p(pixel), written out with `math` from the definition: mass of [y - 1/255, y + 1/255] with open ends."""

    def sigmoid(a: float) -> float:
        return 1 / (1 + math.exp(-a))

    y = pixel / 255 * 2 - 1
    total = sum(math.exp(logit) for logit in logits)
    p = 0.0
    for logit, mean, log_scale in zip(logits, means, log_scales, strict=True):
        scale = math.exp(log_scale)
        upper = 1.0 if pixel == 255 else sigmoid((y + 1 / 255 - mean) / scale)
        lower = 0.0 if pixel == 0 else sigmoid((y - 1 / 255 - mean) / scale)
        p += math.exp(logit) / total * (upper - lower)
    return p


def test_bits_per_dim_of_a_known_picture_is_that_computed_by_hand() -> None:
    logits, means, log_scales = [0.5, -1.0], [-0.8, 0.4], [-2.0, -1.0]
    picture = [0, 3, 25, 128, 200, 255]
    expected = -sum(math.log2(by_hand(pixel, logits, means, log_scales)) for pixel in picture) / len(picture)
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-6)):
        parameters = torch.tensor([*logits, *means, *log_scales], dtype=dtype).expand(1, len(picture), 6)
        nats = -mixture_log_likelihood(parameters, torch.tensor([picture]))
        assert nats.mean().item() / math.log(2) == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize("log_scale", [-50.0, -7.0, -3.0, 0.0, 3.0, 50.0])
@pytest.mark.parametrize("mean", [-3.0, -1.0, -0.9961, 0.0, 0.2345, 1.0, 5.0])
def test_the_256_probabilities_add_up_to_one(mean: float, log_scale: float) -> None:
    parameters = torch.tensor([0.3, -0.2, mean, 0.1, log_scale, -1.0]).expand(256, 6)
    assert mixture_log_likelihood(parameters, torch.arange(256)).exp().sum().item() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("pixel", [0, 1, 128, 254, 255])
def test_values_and_gradients_are_finite_for_extreme_means_and_scales(pixel: int) -> None:
    means, log_scales = torch.meshgrid(torch.tensor(EXTREMES), torch.tensor(EXTREMES), indexing="ij")
    parameters = torch.stack([torch.zeros_like(means), means, log_scales], -1).requires_grad_()
    value = mixture_log_likelihood(parameters, torch.full(means.shape, pixel))
    assert torch.isfinite(value).all()
    assert (value <= 1e-6).all()
    (gradient,) = torch.autograd.grad(value.sum(), parameters)
    assert torch.isfinite(gradient).all()


def test_gradients_are_those_of_differences() -> None:
    torch.manual_seed(0)
    parameters = torch.randn(5, 9, dtype=torch.float64, requires_grad=True)
    pixels = torch.tensor([0, 1, 77, 254, 255])
    assert torch.autograd.gradcheck(lambda p: mixture_log_likelihood(p, pixels), (parameters,))


def test_half_precision_is_widened() -> None:
    parameters = torch.randn(4, 6)
    pixels = torch.tensor([0, 9, 100, 255])
    rounded = parameters.bfloat16()
    assert torch.equal(mixture_log_likelihood(rounded, pixels), mixture_log_likelihood(rounded.float(), pixels))


def frequencies(parameters: Tensor, count: int, temperature: float = 1.0) -> Tensor:
    uniform = torch.rand(count, 2, generator=torch.Generator().manual_seed(0))
    drawn = sample_mixture(parameters.expand(count, -1), uniform, temperature=temperature)
    return drawn.long().bincount(minlength=256) / count


@pytest.mark.parametrize("log_scales", [(-4.0, -3.0), (0.5, 1.0)], ids=["narrow", "wide"])
def test_samples_follow_the_likelihood(log_scales: tuple[float, float]) -> None:
    """The wide scales are where the released code's sampler leaves its own likelihood."""
    parameters = torch.tensor([0.0, 1.0, -0.7, 0.5, *log_scales])
    expected = mixture_log_likelihood(parameters.expand(256, 6), torch.arange(256)).exp()
    found = frequencies(parameters, 400_000)
    assert (found - expected).abs().max().item() < 0.003
    assert (found.cumsum(0) - expected.cumsum(0)).abs().max().item() < 0.004


def test_temperature_narrows_and_zero_is_the_mode() -> None:
    parameters = torch.tensor([0.0, 1.0, -0.7, 0.5, -2.0, -2.0])
    levels = torch.arange(256.0)
    spreads = []
    for temperature in (1.0, 0.5, 0.1):
        chance = frequencies(parameters, 20_000, temperature)
        mean = (chance * levels).sum()
        spreads.append((chance * (levels - mean) ** 2).sum().item())
    assert spreads == sorted(spreads, reverse=True)
    assert frequencies(parameters, 100, 0.0)[round((0.5 + 1) * 127.5)] == 1


def test_wrong_inputs_are_refused() -> None:
    with pytest.raises(ValueError, match="3 numbers for each logistic, not 7 in all"):
        mixture_log_likelihood(torch.zeros(2, 7), torch.zeros(2))
    with pytest.raises(ValueError, match=r"\(2,\), not \(3,\)"):
        mixture_log_likelihood(torch.zeros(2, 6), torch.zeros(3))
    for temperature in (-1.0, math.nan):
        with pytest.raises(ValueError, match="temperature must be 0 or more"):
            sample_mixture(torch.zeros(1, 6), torch.zeros(1, 2), temperature=temperature)
