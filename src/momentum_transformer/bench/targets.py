"""What the project promises of its attention on a CPU, and whether a record keeps it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log
from typing import Any

from .measured_shapes import Shape

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Cell:
    """One measured number, and whether it is within its bound."""

    text: str
    met: bool


@dataclass(frozen=True)
class Target:
    """One promise, and one cell for each shape it speaks of."""

    name: str
    bound: str
    cells: Mapping[Shape, Cell]

    def met(self) -> str:
        kept = sum(cell.met for cell in self.cells.values())
        if not self.cells:
            return "not measured"
        return {len(self.cells): "yes", 0: "no"}.get(kept, f"{kept} of {len(self.cells)}")


FORWARD_TIMES, BACKWARD_TIMES = 6.0, 8.0  # fast-transformers' time over ours
SHARE = 0.45  # of the rate of the matrix product
MOMENTUM_RATIO = 1.15  # to linear attention
SOFTMAX_BOUNDS = {128: 1.0, 784: 5.0, 3072: 15.0}
LARGEST = 12e9  # bytes for the longest sequence
LINEAR = 2.2  # at most this much longer for twice the length


def blocks(record: Record, direction: str) -> dict[Shape, Mapping[str, Any]]:
    """The timings in one direction, by shape."""
    return {Shape(*block["shape"]): block for block in record["shapes"] if block["direction"] == direction}


def best(block: Mapping[str, Any], name: str) -> float | None:
    """The best seconds of one contestant; None where it was not timed."""
    return next((row.get("best") for row in block["rows"] if row["name"] == name), None)


def gemm_share(block: Mapping[str, Any], name: str) -> float | None:
    """Useful operations of a forward pass a second, as a share of the rate of the matrix product."""
    row = next((row for row in block["rows"] if row["name"] == name), None)
    if block["direction"] != "forward" or row is None or "best" not in row or row["computes"] == "softmax":
        return None
    useful = Shape(*block["shape"]).useful_flops(row["computes"])
    share: float = useful / row["best"] / block["gemm_flops"]
    return share


def all_targets(record: Record) -> list[Target]:
    """Every promise about the shapes, held against the backend that is active."""
    active = record["active"]
    found = []
    for direction, times in (("forward", FORWARD_TIMES), ("forward+backward", BACKWARD_TIMES)):
        bound = dict.fromkeys(blocks(record, direction), times)
        cells = _faster(record, direction, f"{active} linear", "fast-transformers", bound)
        found.append(Target(f"linear: fast-transformers' time ÷ ours, {direction}", f"≥ {times:g}", cells))
    for direction in ("forward", "forward+backward"):
        bound = {shape: b for shape in blocks(record, direction) if (b := SOFTMAX_BOUNDS.get(shape.n)) is not None}
        text = "≥ " + ", ".join(f"{b:g}" for b in SOFTMAX_BOUNDS.values())
        cells = _faster(record, direction, f"{active} momentum", "SDPA", bound)
        found.append(Target(f"momentum: SDPA's time ÷ ours, {direction}", text, cells))
    shares = {shape: gemm_share(block, f"{active} momentum") for shape, block in blocks(record, "forward").items()}
    found.append(
        Target("momentum: share of the GEMM rate, forward", f"≥ {100 * SHARE:.0f} %", _cells(shares, _large_share))
    )
    for direction in ("forward", "forward+backward"):
        ratios = {s: block["momentum_to_linear"].get(active) for s, block in blocks(record, direction).items()}
        found.append(
            Target(
                f"momentum's time ÷ linear's, {direction}",
                f"≤ {MOMENTUM_RATIO:g}",
                _cells(ratios, _at_most(MOMENTUM_RATIO)),
            )
        )
    memory = {
        Shape(*row["shape"]): row.get("ratio")
        for row in record["memory"]
        if row["name"] == f"{active} momentum" and Shape(*row["shape"]) in blocks(record, "forward")
    }
    name = "momentum: peak memory ÷ inputs, outputs and gradients"
    found.append(Target(name, "≤ 1.2", _cells(memory, _at_most(1.2))))
    return found


def long_rows(record: Record) -> list[tuple[str, ...]]:
    """Very long sequences: dtype, tokens, seconds, × half, linear?, tensors in GB, peak in GB, within 12 GB?"""
    rows: list[tuple[str, ...]] = []
    half: Mapping[str, Any] = {}
    for row in record["long"]:
        tokens = row["shape"][2]
        doubled = half.get("dtype") == row["dtype"] and 2 * half["shape"][2] == tokens
        ratio = row["seconds"] / half["seconds"] if doubled and "seconds" in row and "seconds" in half else None
        # the call's own tensors are a lower bound on memory: where they are too large, it need not be run
        needed = row.get("peak", row["tensors"])
        known = "peak" in row or needed > LARGEST
        cells = (
            row["dtype"],
            f"{tokens:,}",
            f"{row['seconds']:.2f}" if "seconds" in row else f"skipped: {row['skipped']}",
            "" if ratio is None else f"{ratio:.2f}",
            "" if ratio is None else _yes(ratio <= LINEAR),
            f"{row['tensors'] / 1e9:.2f}",
            f"{row['peak'] / 1e9:.2f}" if "peak" in row else "",
            _yes(needed <= LARGEST) if known else "not measured",
        )
        rows.append(cells)
        half = row
    return rows


def _yes(met: bool) -> str:
    return "yes" if met else "no"


def _faster(record: Record, direction: str, ours: str, peer: str, bound: Mapping[Shape, float]) -> dict[Shape, Cell]:
    cells = {}
    for shape, block in blocks(record, direction).items():
        mine, theirs = best(block, ours), best(block, peer)
        if mine is not None and theirs is not None and shape in bound:
            cells[shape] = Cell(f"{theirs / mine:.2f}", theirs / mine >= bound[shape])
    return cells


def _cells(values: Mapping[Shape, float | None], judge: Callable[[float], Cell]) -> dict[Shape, Cell]:
    return {shape: judge(value) for shape, value in values.items() if value is not None}


def _large_share(share: float) -> Cell:
    return Cell(f"{100 * share:.0f} %", share >= SHARE)


def _at_most(bound: float) -> Callable[[float], Cell]:
    return lambda value: Cell(f"{value:.2f}", value <= bound)


def crossover(record: Record, direction: str, ours: str, softmax: str = "SDPA") -> float | None:
    """The length from which ours stays faster than softmax, between two measured ones on a log scale.

    The shortest measured length where ours is always faster; None where it never is.
    """
    points = []
    for block in record["lengths"]:
        mine, theirs = best(block, ours), best(block, softmax)
        if block["direction"] == direction and mine is not None and theirs is not None:
            points.append((block["shape"][2], theirs / mine))
    return _last_rise(sorted(points))


def _last_rise(points: Sequence[tuple[int, float]]) -> float | None:
    if not points or points[-1][1] < 1:
        return None
    for (n, low), (more, high) in reversed(list(pairwise(points))):
        if low < 1 <= high:
            share = log(1 / low) / log(high / low)
            return float(n * (more / n) ** share)
    return float(points[0][0])
