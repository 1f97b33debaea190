"""What the project promises of the family on a CPU, whether a record keeps it, and what bounds each call."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .contestants import GATED_DELTA_PEER, KDA_PEER, TOKEN_PEER
from .limits import bytes_moved, operations
from .measured_shapes import FAMILY_SHAPES, KDA_SHAPES, TOKENS, Shape
from .targets import Cell, Record, Target, best

MEMORY_RATIO = 1.3  # to inputs, outputs and gradients


@dataclass(frozen=True)
class Bar:
    """One promise: a peer takes so many times as long as ours, or ours at most so many times another of ours."""

    what: str
    direction: str
    ours: str
    other: str
    times: Mapping[Shape, float] = field(default_factory=dict)  # how many times as long a peer takes, at the least
    ratio: float | None = None  # or the most that ours takes of the other

    @property
    def bound(self) -> str:
        if self.ratio is not None:
            return f"≤ {self.ratio:g}"
        return "≥ " + ", ".join(f"{times:g}" for times in dict.fromkeys(self.times.values()))

    def cell(self, block: Mapping[str, Any]) -> Cell | None:
        """What was measured; None where one of both was not, or nothing is promised."""
        asked, ours, other = self.asked(block), best(block, self.ours), best(block, self.other)
        if asked is None or ours is None or other is None:
            return None
        return Cell(f"{other / ours if self.ratio is None else ours / other:.2f}", ours <= asked)

    def asked(self, block: Mapping[str, Any]) -> float | None:
        """The seconds within which ours keeps the promise."""
        other, shape = best(block, self.other), Shape(*block["shape"])
        if block["direction"] != self.direction or other is None:
            return None
        if self.ratio is not None:
            return self.ratio * other
        return other / self.times[shape] if shape in self.times else None


def _against(what: str, direction: str, other: str, times: dict[Shape, float]) -> Bar:
    computes = what.split(":")[0]
    return Bar(f"{what} Transformers' time ÷ ours, {direction}", direction, f"auto {computes}", other, times)


def _within(what: str, direction: str, ours: str, other: str, *, ratio: float) -> Bar:
    return Bar(f"{what}, {direction}", direction, f"auto {ours}", f"auto {other}", ratio=ratio)


BOTH = "forward+backward"
BARS = (
    _against("gated delta:", "forward", GATED_DELTA_PEER, dict(zip(FAMILY_SHAPES, (5, 7, 11, 20), strict=True))),
    _against("gated delta:", BOTH, GATED_DELTA_PEER, dict(zip(FAMILY_SHAPES, (5, 6, 9, 12), strict=True))),
    _against("KDA:", "forward", KDA_PEER, dict.fromkeys(KDA_SHAPES, 50)),
    _against("one token:", "forward", TOKEN_PEER, dict.fromkeys(TOKENS, 5)),
    _within("gated delta's time ÷ momentum's", "forward", "gated delta", "momentum", ratio=1.2),
    _within("momentum delta's time ÷ gated delta's", "forward", "momentum delta", "gated delta", ratio=1.6),
    _within("momentum delta's time ÷ gated delta's", BOTH, "momentum delta", "gated delta", ratio=1.6),
    _within("coefficients a token ÷ a head", "forward", "gated delta", "gated delta a head", ratio=1.15),
    _within("coefficients a token ÷ a head", BOTH, "gated delta", "gated delta a head", ratio=1.15),
)


def columns(record: Record) -> list[Shape]:
    """The shapes of sequences, in order; a single token stands below the first of its heads and width."""
    return list(dict.fromkeys(Shape(*block["shape"]) for block in record["family"] if block["group"] == "members"))


def family_targets(record: Record, threads: int = 1) -> list[Target]:
    """Every promise, with this number of threads."""
    shapes = columns(record)
    found = []
    for bar in BARS:
        cells = {}
        for block in record["family"]:
            cell = bar.cell(block) if block["threads"] == threads else None
            if cell is not None:
                cells[_column(Shape(*block["shape"]), shapes)] = cell
        found.append(Target(bar.what, bar.bound, cells))
    for name in ("gated delta", "momentum delta"):
        rows = (row for row in record["memory"] if row["name"] == f"auto {name}" and "ratio" in row)
        cells = {Shape(*row["shape"]): Cell(f"{row['ratio']:.2f}", row["ratio"] <= MEMORY_RATIO) for row in rows}
        what = f"{name}: peak memory ÷ inputs, outputs and gradients"
        found.append(Target(what, f"≤ {MEMORY_RATIO:g}", cells))
    return found


def _column(shape: Shape, shapes: list[Shape]) -> Shape:
    return next((one for one in shapes if shape.n == 1 and one._replace(n=1) == shape), shape)


@dataclass(frozen=True)
class Limit:
    """One call of ours: seconds of its operations and of its bytes at the machine's rates, measured and asked for."""

    shape: Shape
    computes: str
    direction: str
    operations: float
    bytes: float
    measured: float
    asked: float | None

    @property
    def binding(self) -> str:
        return "operations" if self.operations > self.bytes else "bytes"


def limits(record: Record, threads: int = 1) -> Iterator[Limit]:
    """The limits of every call of ours that was timed with this number of threads."""
    for block in record["family"]:
        if block["threads"] != threads:
            continue
        shape, direction = Shape(*block["shape"]), block["direction"]
        for row in block["rows"]:
            if not row["name"].startswith("auto ") or "best" not in row:
                continue
            asked = [bar.asked(block) for bar in BARS if bar.ours == row["name"]]
            yield Limit(
                shape,
                row["computes"],
                direction,
                operations(shape, row["computes"], direction) / block["gemm_flops"],
                bytes_moved(shape, direction, row["computes"]) / block["triad_bytes"],
                row["best"],
                min((seconds for seconds in asked if seconds is not None), default=None),
            )
