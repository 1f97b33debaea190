"""Coefficients that x decides, one a token and head: (b, n, width) → (b, h, n), in float32 or wider."""

import math

import torch
import torch.nn.functional as F  # noqa: N812 (the field's name for it)
from torch import Tensor, nn

from ..backend.products import linear
from .linear_layer import Linear


class Gate(nn.Module):
    """A linear map of x to one number a head, and what makes a coefficient of it."""

    def __init__(self, width: int, heads: int, *, bias: float | None = None) -> None:
        super().__init__()
        self.project: nn.Linear = Linear(width, heads, bias=bias is not None)
        if bias is not None:  # a gate with a bias starts as the constant that the bias stands for
            nn.init.zeros_(self.project.weight)
            nn.init.constant_(self.project.bias, bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.opened(by_head(self.project(x)))

    def opened(self, logits: Tensor) -> Tensor:
        """The coefficient of logits (b, h, n)."""
        raise NotImplementedError


def by_head(logits: Tensor) -> Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32)).transpose(1, 2).contiguous()


def open_gates(gates: list[Gate], x: Tensor) -> list[Tensor]:
    """The values of all gates, by one matrix product: one for each gate would read x, and write dx, once for each."""
    projections = [gate.project for gate in gates]
    if len(gates) < 2 or any(type(one) is not Linear for one in projections):  # such as an adapter
        return [gate(x) for gate in gates]
    weights: list[Tensor] = [one.weight for one in projections]
    biases: list[Tensor] = [
        one.weight.new_zeros(one.out_features) if one.bias is None else one.bias for one in projections
    ]
    logits = by_head(linear(x, torch.cat(weights), torch.cat(biases))).unflatten(1, (len(gates), -1))
    return [gate.opened(its) for gate, its in zip(gates, logits.unbind(1), strict=True)]


class Strength(Gate):
    """most · sigmoid(Wx): how much is written."""

    def __init__(self, width: int, heads: int, *, most: float = 1.0) -> None:
        super().__init__(width, heads)
        self.most = most

    def opened(self, logits: Tensor) -> Tensor:
        return self.most * logits.sigmoid()


class Share(Gate):
    """sigmoid(Wx + b), from the constant `start` on."""

    def __init__(self, width: int, heads: int, *, start: float) -> None:
        super().__init__(width, heads, bias=math.log(start / (1 - start)))

    def opened(self, logits: Tensor) -> Tensor:
        return logits.sigmoid()


class StepSize(Gate):
    """softplus(Wx + b), from the constant `start` on."""

    def __init__(self, width: int, heads: int, *, start: float) -> None:
        super().__init__(width, heads, bias=start + math.log(-math.expm1(-start)))

    def opened(self, logits: Tensor) -> Tensor:
        return F.softplus(logits)


class Decay(Gate):
    """exp(-exp(A) softplus(Wx + d)): at the start a head forgets at a rate of 1 to 16 times a step of `steps`."""

    def __init__(self, width: int, heads: int, *, steps: tuple[float, float]) -> None:
        super().__init__(width, heads)
        low, high = steps
        step = torch.exp(torch.empty(heads).uniform_(math.log(low), math.log(high)))
        self.rate = nn.Parameter(torch.empty(heads).uniform_(1, 16).log())
        self.offset = nn.Parameter(step + torch.log(-torch.expm1(-step)))  # softplus(offset) = step

    def opened(self, logits: Tensor) -> Tensor:
        rate, offset = (p.to(logits.dtype)[:, None] for p in (self.rate, self.offset))
        return torch.exp(-torch.exp(rate) * F.softplus(logits + offset))
