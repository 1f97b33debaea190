"""A mixture of logistic distributions over the 256 values of a byte: its likelihood, and samples of it.

Parameters are (..., 3k): k logits, k means, k logarithms of scales. Means and scales are those of bytes mapped to
[-1, 1], as in the paper's protocol. A byte x is the interval [x - ½, x + ½], the first and the last one open to the
outside, so that the 256 probabilities add up to one.
"""

import math

import torch
import torch.nn.functional as F  # noqa: N812 (the field's name for it)
from torch import Tensor

MINIMUM_LOG_SCALE = -7.0
HALF = 127.5  # bytes per unit


def mixture_log_likelihood(parameters: Tensor, pixels: Tensor) -> Tensor:
    """log p of each byte: parameters (..., 3k), pixels (...) → (...), in float32 or wider.

    σ(a) - σ(b) = σ(a) σ(-b) (1 - e^(b-a)) turns the mass of an interval into a product, whose logarithm neither
    cancels nor underflows, however far the mean and however small or large the scale.
    """
    # Deviation: exact everywhere, where the released code has a floor of 1e-12 and a density for narrow intervals.
    if pixels.shape != parameters.shape[:-1]:
        raise ValueError(
            f"pixels must have the shape of parameters but for the last axis, {tuple(parameters.shape[:-1])}, "
            f"not {tuple(pixels.shape)}"
        )
    logits, centre, log_rate = _split(parameters)
    x = pixels[..., None].to(centre.dtype)
    rate = log_rate.exp()
    below, above = (x - 0.5 - centre) * rate, (x + 0.5 - centre) * rate
    # log(1 - e^-rate), by its series where the rate is too small for the subtraction or even for float32
    width = torch.where(rate < 1e-3, log_rate - rate / 2, torch.log(-torch.expm1(-rate.clamp(min=1e-3))))
    inside = F.logsigmoid(above) + F.logsigmoid(-below) + width
    log_mass = torch.where(x < 0.5, F.logsigmoid(above), torch.where(x > 254.5, F.logsigmoid(-below), inside))
    return torch.logsumexp(F.log_softmax(logits, -1) + log_mass, -1)


def sample_mixture(parameters: Tensor, uniform: Tensor, *, temperature: float = 1.0) -> Tensor:
    """A byte for each row of parameters (..., 3k), from two numbers in [0, 1) each, `uniform` (..., 2) → uint8 (...).

    The first number picks the logistic, the second the place in it. `temperature` flattens or sharpens the choice and
    widens or narrows the scale; at 0 it is the mean of the likeliest logistic.
    """
    if not temperature >= 0:
        raise ValueError(f"temperature must be 0 or more, not {temperature}")
    logits, centre, log_rate = _split(parameters)
    chance = F.softmax(logits / max(temperature, 1e-6), -1)
    passed = (chance.cumsum(-1) <= uniform[..., :1]).sum(-1, keepdim=True)
    choice = passed.clamp(max=logits.shape[-1] - 1)
    if temperature == 0:
        choice = logits.argmax(-1, keepdim=True)
    # the same scale as in the likelihood; the released code samples with another one
    scale = (-log_rate.gather(-1, choice)).exp()
    u = uniform[..., 1:].to(centre.dtype).clamp(1e-7, 1 - 1e-7)
    place = centre.gather(-1, choice) + temperature * scale * torch.logit(u)
    return place.round().clamp(0, 255).to(torch.uint8).squeeze(-1)


def _split(parameters: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, centres in bytes, and logarithms of 1/scale per byte."""
    if parameters.shape[-1] % 3:
        raise ValueError(f"parameters must have 3 numbers for each logistic, not {parameters.shape[-1]} in all")
    wide = parameters if parameters.dtype == torch.float64 else parameters.float()
    logits, means, log_scales = wide.chunk(3, -1)
    return logits, (means + 1) * HALF, -log_scales.clamp(min=MINIMUM_LOG_SCALE) - math.log(HALF)
