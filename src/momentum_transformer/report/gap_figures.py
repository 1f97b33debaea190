"""Figures of the gap: shares closed, a member taken apart, recall against the size of the state."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .figures import COLOURS, DASHES, MARKERS, STYLE

LOWEST, HIGHEST = -0.3, 1.5  # of the shares that are drawn
COLUMNS = 4
Values = Mapping[str, np.ndarray]


class Panel(NamedTuple):
    """One task: the shares of every model, a number a seed, and who is at chance."""

    title: str
    shares: Values
    guessing: frozenset[str]


def share_figure(panels: Sequence[Panel]) -> Figure:
    """A panel a task, a line a model, a hollow dot a seed; 0 is linear attention and 1 is softmax."""
    names = list(dict.fromkeys(name for panel in panels for name in panel.shares))
    places = {name: -i for i, name in enumerate(names)}
    columns = min(COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    with plt.rc_context(STYLE):
        size = (2.0 + 2.4 * columns, 0.7 + (0.4 + 0.19 * len(names)) * rows)
        figure, grid = plt.subplots(rows, columns, figsize=size, sharey=True, squeeze=False)
        for axis, panel in zip(grid.flat, panels, strict=False):
            for name, shares in panel.shares.items():
                _dots(axis, shares, places[name], name, guessing=name in panel.guessing)
            for end in (0, 1):
                axis.axvline(end, color="#333333", lw=1.0, ls="-" if end else "--", zorder=0)
            axis.set_xlim(LOWEST - 0.05, HIGHEST + 0.05)
            axis.set_xticks((0, 0.5, 1, 1.5))
            axis.set_title(panel.title, fontsize=9)
        for axis in list(grid.flat)[len(panels) :]:
            axis.set_axis_off()
        for row in grid:
            row[0].set_yticks(list(places.values()), names)
        figure.supxlabel("share of the gap closed (0: linear attention, 1: softmax attention)", fontsize=9)
    return figure


def _dots(axis: Axes, values: np.ndarray, place: float, name: str, *, guessing: bool) -> None:
    """Seeds hollow, their mean full; beyond the axis an arrow and the mean; who is at chance a grey cross."""
    model = name.split(" ")[0]
    colour, marker = ("#aaaaaa", "x") if guessing else (COLOURS[model], MARKERS[model])
    mean = float(values.mean())
    for value, filling, size in [*((one, "none", 4) for one in values), (mean, colour, 6)]:
        shown, label = marker, ""
        if not LOWEST <= value <= HIGHEST:
            shown, label = "<" if value < LOWEST else ">", f"{value:.4g}, beyond the axis at"
        axis.plot(np.clip(value, LOWEST, HIGHEST), place, shown, color=colour, mfc=filling, ms=size, label=label)
    if not LOWEST <= mean <= HIGHEST:
        side = "left" if mean < LOWEST else "right"
        words = f"  {mean:.1f}" if mean < LOWEST else f"{mean:.1f}  "
        axis.text(np.clip(mean, LOWEST, HIGHEST), place, words, fontsize=7, color=colour, ha=side, va="center")


def apart_figure(panels: Sequence[tuple[str, Values]]) -> Figure:
    """A panel a task: the score with everything, and without each part."""
    parts = list(dict.fromkeys(part for _, values in panels for part in values))
    places = {part: -i for i, part in enumerate(parts)}
    colour, marker = COLOURS["momentum-delta"], MARKERS["momentum-delta"]
    with plt.rc_context(STYLE):
        figure, grid = plt.subplots(1, len(panels), figsize=(2 + 2.4 * len(panels), 2.6), sharey=True, squeeze=False)
        for axis, (title, values) in zip(grid[0], panels, strict=True):
            for part, scores in values.items():
                axis.plot(scores, np.full(len(scores), places[part]), marker, color=colour, mfc="none", ms=4, lw=0)
                axis.plot(scores.mean(), places[part], marker, color=colour, ms=7)
            axis.axvline(values["nothing"].mean(), color="#333333", lw=1.0, ls="--", zorder=0)
            axis.set_xlabel(title)
            axis.locator_params(axis="x", nbins=4)  # as many numbers as there is room for
        labels = ["everything" if part == "nothing" else f"without {part}" for part in parts]
        grid[0][0].set_yticks(list(places.values()), labels)
    return figure


def state_figure(lines: Mapping[str, Sequence[tuple[int, float]]], growth: Sequence[tuple[int, int]]) -> Figure:
    """Accuracy against bytes: a line a model, and how softmax's cache grows to its place."""
    with plt.rc_context(STYLE):
        figure, axis = plt.subplots(figsize=(6.4, 3.6))
        for model, points in lines.items():
            sizes, accuracies = zip(*sorted(points), strict=True)
            axis.plot(
                sizes, accuracies, color=COLOURS[model], ls=DASHES[model], marker=MARKERS[model], ms=5, label=model
            )
        for tokens, size in growth:
            axis.axvline(size, color=COLOURS["softmax"], lw=0.8, ls=":", zorder=0)
            words = f"cache after {tokens} tokens"
            axis.text(size, 0.02, words, rotation=90, fontsize=7, ha="right", transform=axis.get_xaxis_transform())
        axis.set_xscale("log", base=2)
        axis.set_xlabel("bytes kept of a sequence")
        axis.set_ylabel("accuracy of recall (test)")
        axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure
