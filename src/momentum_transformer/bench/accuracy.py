"""How far the fast forms are from the recurrence in float64, outputs and gradients.

    python -m momentum_transformer.bench.accuracy --out results/accuracy.json

The error of a result is its largest deviation relative to its largest value. Inputs are rounded to the dtype first, so
that what is measured is arithmetic, not the rounding of inputs.
"""

import argparse
import statistics
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..attention import linear_attention, momentum_attention
from ..backend.choose import backends
from .record import machine, save

SHAPES = [(1, 2, 17, 16, 16), (2, 2, 100, 32, 32), (1, 1, 257, 64, 64), (1, 2, 300, 20, 7), (1, 1, 1500, 32, 32)]
BETAS = [None, 0.0, 0.1, 0.6, 0.9, 0.99, 0.9999]
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def results(tensors: list[Tensor], beta: float | None, backend: Any) -> list[Tensor]:
    """y and the gradients of q, k, v."""
    *leaves, grad = tensors
    leaves = [x.detach().requires_grad_() for x in leaves]
    if beta is None:
        y = linear_attention(*leaves, backend=backend)
    else:
        y = momentum_attention(*leaves, beta=beta, backend=backend)
    return [y.detach(), *torch.autograd.grad(y, leaves, grad)]


def errors(shape: tuple[int, ...], beta: float | None, dtype: torch.dtype, forms: list[str]) -> dict[str, list[float]]:
    b, h, n, d, e = shape
    tensors = [torch.randn(b, h, n, width).to(dtype) for width in (d, d, e, e)]
    exact = results([x.double() for x in tensors], beta, "chunked")
    found = {}
    for form in forms:
        given = results(tensors, beta, form)
        found[form] = [float((a.double() - b).abs().max() / b.abs().max()) for a, b in zip(given, exact, strict=True)]
    return found


def check() -> None:
    """The reference itself: the chunked form in float64 is the recurrence, or nothing is measured."""
    tensors = [torch.randn(1, 1, 200, 8, dtype=torch.float64) for _ in range(4)]
    for beta in BETAS:
        for a, b in zip(results(tensors, beta, "chunked"), results(tensors, beta, "recurrent"), strict=True):
            if not torch.allclose(a, b, rtol=1e-10, atol=1e-11):
                raise SystemExit("the chunked form in float64 is not the recurrence; nothing was measured")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the figures there as JSON")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    check()
    forms = [status.name for status in backends() if status.available and status.name in ("native", "chunked")]
    rows = []
    for dtype in DTYPES:
        found: dict[str, list[list[float]]] = {form: [] for form in forms}
        for beta in BETAS:
            for shape in SHAPES:
                for form, values in errors(shape, beta, dtype, forms).items():
                    found[form].append(values)
        for form, lists in found.items():
            if form == "chunked" and dtype == torch.float64:
                continue  # the reference itself
            outputs, gradients = [v[0] for v in lists], [x for v in lists for x in v[1:]]
            row = {"dtype": str(dtype).removeprefix("torch."), "backend": form, "cases": len(lists)}
            for name, values in (("output", outputs), ("gradient", gradients)):
                row[f"{name}_median"] = float(f"{statistics.median(values):.2g}")
                row[f"{name}_worst"] = float(f"{max(values):.2g}")
            rows.append(row)
            print(row)
    result = {
        "command": "python -m momentum_transformer.bench.accuracy",
        "machine": machine(),
        "betas": BETAS,
        "shapes": SHAPES,
        "rows": rows,
    }
    save(result, arguments.out)


if __name__ == "__main__":
    main()
