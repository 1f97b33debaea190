"""The gate: outputs and gradients agree with a reference in float64, or nothing is timed.

The reference is the quadratic form, and for members of the family the recurrence, token by token.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch

from ..attention import linear_attention, momentum_attention
from ..ops.shapes import Tensor
from .contestants import BETA, Attend, Contestant, UnavailableError, inputs
from .measured_shapes import Shape
from .members import EXTRAS, attend_member, names

ODD = Shape(2, 3, 67, 7)
# worst error of any element, relative to the largest element of the same tensor
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}


@dataclass(frozen=True)
class Verdict:
    """Whether a contestant may be timed."""

    name: str
    status: str  # agrees, disagrees, unavailable
    reason: str = ""
    error: float | None = None  # in the dtype that is timed

    @property
    def passed(self) -> bool:
        return self.status == "agrees"


def softmax_reference(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Eq. 3, written out."""
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v


def reference(contestant: Contestant) -> Attend:
    """What the contestant ought to compute."""
    if contestant.computes in EXTRAS:
        return partial(attend_member, computes=contestant.computes, backend="recurrent")
    if contestant.computes == "softmax":
        return softmax_reference
    if contestant.computes == "linear":
        return partial(linear_attention, backend="quadratic", eps=contestant.eps)
    return partial(momentum_attention, beta=BETA, backend="quadratic", eps=contestant.eps)


def judge(contestant: Contestant, widths: Sequence[int]) -> Verdict:
    """At a small odd shape, and at each width that will be timed, over a length with whole and broken chunks."""
    try:
        attend = contestant.load()
    except UnavailableError as reason:
        return Verdict(contestant.name, "unavailable", str(reason))
    worst = 0.0
    for shape in (ODD, *(Shape(1, 2, 150, width) for width in sorted(set(widths)))):
        shape = shape._replace(n=1) if contestant.computes == "one token" else shape
        for dtype in (torch.float64, torch.float32) if contestant.double else (torch.float32,):
            try:
                errors = compare(contestant, attend, shape, dtype)
            except (RuntimeError, ValueError, TypeError, AssertionError) as failure:
                return Verdict(contestant.name, "disagrees", f"fails at {shape}: {failure}".splitlines()[0])
            part, error = max(errors.items(), key=lambda item: item[1])
            if error > TOLERANCE[dtype]:
                what = f"{part} is off by {error:.1e} of its largest element at {shape}, {dtype}"
                return Verdict(contestant.name, "disagrees", what, error)
            if dtype is torch.float32:
                worst = max(worst, error)
    return Verdict(contestant.name, "agrees", contestant.note, worst)


def compare(contestant: Contestant, attend: Attend, shape: Shape, dtype: torch.dtype) -> dict[str, float]:
    """The error of y and of every gradient, with inputs of this dtype, against the reference in float64."""
    *tensors, grad = inputs(shape, dtype, contestant.computes)
    adapt = contestant.adapt
    found = _results(attend if adapt is None else lambda *x: attend(*adapt(*x)), tensors, grad, contestant)
    double = [x.detach().double().requires_grad_() for x in tensors]
    right = _results(reference(contestant), double, grad.double(), contestant)
    return {name: _error(found[name], right[name]) for name in right}


def _results(attend: Attend, tensors: Sequence[Tensor], grad: Tensor, contestant: Contestant) -> dict[str, Tensor]:
    with torch.no_grad():  # which may be served by other code than a call with gradients
        forward = attend(*tensors)
    if contestant.computes == "one token":  # decoding
        return dict(zip(("y", "the state"), forward, strict=True))
    y = attend(*tensors)
    gradients = torch.autograd.grad(y, tensors, grad)
    parts = (f"the gradient of {name}" for name in names(contestant.computes))
    return {"y": forward, "y with gradients": y} | dict(zip(parts, gradients, strict=True))


def _error(found: Tensor, right: Tensor) -> float:
    if found.shape != right.shape:
        return float("inf")
    error = ((found.double() - right).abs().max() / right.abs().max()).item()
    return error if error == error else float("inf")  # NaN is as wrong as can be
