"""Time and memory against the length, with what the machine could do drawn in, and the crossover with softmax."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..report.figures import COLOURS, DASHES, MARKERS, STYLE, svg
from .measured_shapes import Shape
from .targets import Record, crossover
from .timing import DIRECTIONS

SDPA, MOMENTUM = (
    {"color": COLOURS[model], "ls": DASHES[model], "marker": MARKERS[model]} for model in ("softmax", "momentum")
)
LOOKS: dict[str, dict[str, Any]] = {
    "native momentum": MOMENTUM,
    "chunked momentum": MOMENTUM | {"ls": ":", "mfc": "white"},
    "SDPA": SDPA,
}
ROOFLINE: dict[str, Any] = {"color": "#666666", "ls": (0, (4, 1, 1, 1, 1, 1)), "lw": 1.4}
# above the curves, because the best of them lie on it
TENSORS: dict[str, Any] = {"color": "#222222", "ls": (0, (1, 2)), "lw": 1.2, "zorder": 3}


def draw(record: Record) -> str:
    """The picture as SVG text, the same bytes for the same record."""
    return svg(figure(record))


def figure(record: Record) -> Figure:
    """Panels on logarithmic axes: forward, forward and backward, and memory where it was measured."""
    with plt.rc_context(STYLE):
        shapes = {tuple(block["shape"]) for block in record["lengths"]}
        memory = [row for row in record["memory"] if tuple(row["shape"]) in shapes and "peak" in row]
        panels = 3 if memory else 2
        drawn, axes = plt.subplots(1, panels, figsize=(3.7 * panels, 3.7))
        for direction, axis in zip(DIRECTIONS, axes, strict=False):
            _time_panel(record, direction, axis)
        if memory:
            _memory_panel(memory, axes[2])
        for axis in axes:
            lengths = sorted(
                {int(x) for line in axis.get_lines() if line.get_label() in LOOKS for x in line.get_xdata()}
            )
            axis.set(xscale="log", yscale="log", xlabel="length n (tokens)")
            axis.set_xticks(lengths[:: -((len(lengths) + 5) // 6)], minor=False)
            axis.set_xticks([], minor=True)
            axis.xaxis.set_major_formatter("{x:,.0f}")
        named = {label: line for axis in axes for line, label in zip(*axis.get_legend_handles_labels(), strict=True)}
        drawn.legend(list(named.values()), list(named), loc="outside lower center", ncols=len(named))
    return drawn


def _time_panel(record: Record, direction: str, axis: Axes) -> None:
    found = [block for block in record["lengths"] if block["direction"] == direction]
    _curves(axis, [(row["name"], block["shape"][2], row.get("best")) for block in found for row in block["rows"]])
    if direction == "forward":  # the count of useful operations is that of the forward recurrence
        n = [block["shape"][2] for block in found]
        rate = max((block["gemm_flops"] for block in found), default=1.0)
        least = [Shape(*block["shape"]).useful_flops("momentum") / rate for block in found]
        axis.plot(n, least, label="GEMM roofline for 8de operations", **ROOFLINE)
    where = crossover(record, direction, f"{record['active']} momentum")
    if where is not None:
        always = where == min(block["shape"][2] for block in found)
        text = f"SDPA is slower than\n{record['active']} "
        _mark(axis, where, text + ("at every n" if always else f"from n ≈ {where:.0f}"))
    axis.set_ylabel("seconds")
    axis.set_title(f"time, {direction}", fontsize=9)


def _mark(axis: Axes, where: float, text: str) -> None:
    """A line at this length, and what it means."""
    axis.axvline(where, color="#444444", lw=0.9, ls=":")
    axis.annotate(
        text,
        (where, 0.98),
        xycoords=("data", "axes fraction"),
        xytext=(4, 0),
        textcoords="offset points",
        va="top",
        fontsize=8,
    )


def _memory_panel(rows: Sequence[Mapping[str, Any]], axis: Axes) -> None:
    _curves(axis, sorted((row["name"], row["shape"][2], row["peak"] / 1e6) for row in rows))
    least = dict(sorted((row["shape"][2], row["tensors"] / 1e6) for row in rows))
    axis.plot(list(least), list(least.values()), label="q, k, v, y and their gradients", **TENSORS)
    axis.set_ylabel("peak memory (MB)")
    axis.set_title("memory, forward+backward", fontsize=9)


def _curves(axis: Axes, points: Sequence[tuple[str, int, float | None]]) -> None:
    """Each contestant's (name, x, y) as a line; nothing where it was not measured."""
    for name, look in LOOKS.items():
        own = [(x, y) for other, x, y in points if other == name and y is not None]
        if own:
            axis.plot(*zip(*own, strict=True), label=name, lw=1.4, ms=4, **look)
