"""Adaptive momentum: β from the updates themselves, one value a token (eq. 17, 18).

A rule looks at a layer's update g, the update g' of the layer before, and the velocity v that β will multiply.
Norms and products are over the features. Every rule returns shape (..., 1), in [0, 1 - δ], with finite
gradients even where a norm is zero.
"""

import math
from collections.abc import Callable

import torch

from .checks import check_like
from .shapes import Float, Tensor

Rule = Callable[[Tensor, Tensor, Tensor, float], Tensor]

TINY = 1e-30  # a squared norm below this counts as zero


def adaptive_momentum(
    update: Float[Tensor, "*b d"], previous_update: Float[Tensor, "*b d"], *, delta: float = 1e-3
) -> Float[Tensor, "*b 1"]:
    """proj[0, 1-δ] (1 - √(‖g - g'‖/‖g'‖))² (eq. 18), one β per token.

    Args:
        update: g, what this layer would add to each token.
        previous_update: g', what the layer before has added.
        delta: δ, how far below 1 β stays.

    Returns:
        β (..., 1), in [0, 1 - δ].

    Examples:
        >>> adaptive_momentum(torch.ones(2, 4), torch.ones(2, 4)).shape
        torch.Size([2, 1])
    """
    # Deviation: the paper has one β a layer; per token, a sample's result does not depend on its batch.
    if not update.is_floating_point():
        raise ValueError(f"update must have a floating-point dtype, not {update.dtype}")
    check_like("previous_update", previous_update, update, "update")
    return _from_ratio(update - previous_update, previous_update, delta)


def _from_ratio(difference: Tensor, base: Tensor, delta: float) -> Tensor:
    """proj (1 - √(‖difference‖/‖base‖))². Where a norm vanishes, the limit: the ratio is 0 or ∞, β is 1 - δ."""
    check_delta(delta)
    difference2, base2 = _dot(difference, difference), _dot(base, base)
    regular = (base2 > TINY) & (difference2 > TINY * base2) & (difference2 < 16 * base2)
    ratio2 = torch.where(regular, difference2, 1) / torch.where(regular, base2, 1)
    beta = torch.where(regular, (1 - ratio2.pow(0.25)).square(), 1)
    beta = torch.where(difference2.isnan() | base2.isnan(), torch.nan, beta)
    return beta.clamp(0, highest(delta, difference.dtype)).to(difference.dtype)


def _quotient(numerator: Tensor, denominator: Tensor, delta: float, dtype: torch.dtype) -> Tensor:
    """proj (numerator / denominator); β is 0 where the denominator vanishes."""
    check_delta(delta)
    numerator, denominator = numerator * denominator.sign(), denominator.abs()
    exists = denominator > TINY
    regular = exists & (numerator > 0) & (numerator < denominator)  # elsewhere the projection is constant
    beta = torch.where(regular, numerator, 0) / torch.where(regular, denominator, 1)
    beta = torch.where(exists & (numerator >= denominator), 1, beta)
    beta = torch.where(numerator.isnan() | denominator.isnan(), torch.nan, beta)
    return beta.clamp(0, highest(delta, dtype)).to(dtype)


def highest(delta: float, dtype: torch.dtype) -> float:
    """The largest number of this dtype that is not above 1 - δ: in bfloat16, 0.999 itself would round to 1."""
    spacing = torch.finfo(dtype).eps / 2
    return math.floor((1 - delta) / spacing) * spacing


def _dot(a: Tensor, b: Tensor) -> Tensor:
    wide = torch.promote_types(a.dtype, torch.float32)
    return (a.to(wide) * b.to(wide)).sum(-1, keepdim=True)


def check_delta(delta: float) -> None:
    if not 0 <= delta <= 1:
        raise ValueError(f"delta must be in [0, 1], not {delta}")


def paper(g: Tensor, previous: Tensor, velocity: Tensor, delta: float) -> Tensor:
    return adaptive_momentum(g, previous, delta=delta)


def released(g: Tensor, previous: Tensor, velocity: Tensor, delta: float) -> Tensor:
    """The authors' code: ‖v‖ in place of ‖g'‖, the same at the second layer and another value from the third on."""
    return _from_ratio(g - previous, velocity, delta)


def fletcher_reeves(g: Tensor, previous: Tensor, velocity: Tensor, delta: float) -> Tensor:
    """‖g‖²/‖g'‖²."""
    return _quotient(_dot(g, g), _dot(previous, previous), delta, g.dtype)


def polak_ribiere(g: Tensor, previous: Tensor, velocity: Tensor, delta: float) -> Tensor:
    """⟨g, g - g'⟩/‖g'‖²."""
    return _quotient(_dot(g, g - previous), _dot(previous, previous), delta, g.dtype)


def hestenes_stiefel(g: Tensor, previous: Tensor, velocity: Tensor, delta: float) -> Tensor:
    """-⟨g, g - g'⟩/⟨v, g - g'⟩: the updates are descent directions, so the gradients are -g and -g'."""
    return _quotient(_dot(g, g - previous), -_dot(velocity, g - previous), delta, g.dtype)


def dai_yuan(g: Tensor, previous: Tensor, velocity: Tensor, delta: float) -> Tensor:
    """-‖g‖²/⟨v, g - g'⟩."""
    return _quotient(_dot(g, g), -_dot(velocity, g - previous), delta, g.dtype)


RULES: dict[str, Rule] = {
    "paper": paper,
    "released": released,
    "fletcher-reeves": fletcher_reeves,
    "polak-ribiere": polak_ribiere,
    "hestenes-stiefel": hestenes_stiefel,
    "dai-yuan": dai_yuan,
}
