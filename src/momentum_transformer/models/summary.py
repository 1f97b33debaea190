"""A model in a few lines, for print(model): how its tokens mix, with β and γ, its sizes, its parameters."""

from itertools import groupby

from torch import nn

from ..layers.block import Attention
from ..layers.description import ALWAYS, described
from ..layers.paper_mixers import LearnedMomentum


def summary(model: nn.Module) -> str:
    parameters = sum(parameter.numel() for parameter in model.parameters())
    lines = [f"{type(model).__name__}: {parameters:,} parameters"]
    layers = [module for module in model.modules() if isinstance(module, Attention)]
    for choice, group in groupby(layers, key=lambda layer: layer.choice):
        alike = list(group)
        lines.append(f"{len(alike)} × {described(choice)}{_learned(alike)}")
    rules = dict.fromkeys(described(module.residual) for module in model.modules() if hasattr(module, "residual"))
    lines += [f"residual: {rule}" for rule in rules]
    if layers:
        order = "causal" if layers[0].causal else "not causal"
        lines.append(f"width {layers[0].query.in_features}, {layers[0].heads} heads, {order}")
    return "\n  ".join(lines)


def _learned(layers: list[Attention]) -> str:
    """The range of the learned coefficients."""
    modules = (module for layer in layers for module in layer.modules())
    found = [module.coefficients() for module in modules if isinstance(module, LearnedMomentum)]
    if not found:
        return ""
    bounds = []
    for name, values in zip(ALWAYS, zip(*found, strict=True), strict=True):
        numbers = [number for value in values for number in value.tolist()]
        bounds.append(f"{name} {min(numbers):.3g} to {max(numbers):.3g}")
    return f", learned: {', '.join(bounds)}"
