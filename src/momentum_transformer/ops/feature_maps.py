"""Feature maps φ: positive features of queries and keys, so that φ(q)·φ(k) stands in for exp(q·k/√d)."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .tracing import eager, transformed

FeatureMap = Callable[[Tensor], Tensor]
L2_EPS = 1e-6  # so that a row of zeros stays one


class _EluPlusOne(torch.autograd.Function):
    """elu(x) + 1 = exp(min(x, 0)) + max(x, 0), keeping only the result for the backward pass."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.clamp(max=0).exp_().add_(x.relu())

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (phi,) = ctx.saved_tensors
        slope = phi.clamp(max=1)
        return slope.mul_(grad) if eager(grad) else slope * grad  # a batch does not fit in place


def elu_plus_one(x: Tensor) -> Tensor:
    """φ(x) = elu(x) + 1, the paper's feature map.

    Written with exp rather than expm1, so that strongly negative inputs keep their relative precision.

    Args:
        x: queries or keys of any shape.

    Returns:
        Features of the same shape, all positive.

    Examples:
        >>> elu_plus_one(torch.tensor([0.0, 1.0])).tolist()
        [1.0, 2.0]
    """
    if transformed():
        return x.clamp(max=0).exp() + x.relu()
    if not (x.requires_grad and torch.is_grad_enabled()):  # `apply` inspects signatures at every call
        return _EluPlusOne.forward(x)
    return _EluPlusOne.apply(x)


def length_scaled(x: Tensor) -> Tensor:
    """φ(x)/n^¼, n tokens at once: what the authors' code for Long Range Arena has in place of a denominator."""
    return elu_plus_one(x) / x.shape[-2] ** 0.25


def l2_normalized(x: Tensor) -> Tensor:
    """x/‖x‖: features of length one, which the delta rule wants."""
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + L2_EPS)


def feature_width(k: Tensor, feature_map: FeatureMap | None) -> int:
    """How many features the map makes of a key (..., n, d)."""
    if feature_map is None or feature_map is elu_plus_one or feature_map is l2_normalized:
        return k.shape[-1]
    return feature_map(k[..., :0, :]).shape[-1]
