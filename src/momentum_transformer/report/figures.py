"""Figures: legible in black and white, axes with units, each model always in the same colour, dash and place."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..experiments.named_models import NAMED
from .groups import Group

COLOURS = {model.name: model.colour for model in NAMED}
DASHES = {model.name: model.dash for model in NAMED}
MARKERS = {model.name: model.marker for model in NAMED}
OTHER = "#777777"  # a model without looks of its own, such as a teacher
ACROSS = {"step": "training steps", "cpu_seconds": "training (CPU seconds)"}
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "svg.hashsalt": "momentum-transformer",
    "figure.constrained_layout.use": True,
}


def svg(figure: Figure) -> str:
    """The figure as SVG text, the same bytes for the same figure."""
    buffer = io.StringIO()
    with plt.rc_context(STYLE):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    plt.close(figure)
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def plot_curve(axis: Axes, group: Group, across: str, metric: str, *, skip: int = 0, hollow: bool = False) -> None:
    """The mean over seeds of a metric at each evaluation but the first `skip`, and a band from lowest to highest."""
    x = group.stacked(across).mean(0)[skip:]
    mean, low, high = (values[skip:] for values in group.curve(metric))
    axis.plot(
        x,
        mean,
        color=COLOURS.get(group.model, OTHER),
        ls=DASHES.get(group.model, "-"),
        lw=1.4,
        marker=MARKERS.get(group.model, "o"),
        ms=3.5,
        mfc="#ffffff" if hollow else None,
        markevery=max(1, len(x) // 6),
        label=group.label,
    )
    axis.fill_between(x, low, high, color=COLOURS.get(group.model, OTHER), alpha=0.12, lw=0)


def counted(found: Sequence[Group]) -> bool:
    """Whether all runs have counted CPU seconds."""
    runs = [run for group in found for run in group.runs]
    return all("cpu_seconds" in run.validation and np.isfinite(run.validation["cpu_seconds"]).all() for run in runs)


def curves(found: Sequence[Group]) -> Figure:
    """Validation loss and accuracy against steps, and loss against CPU seconds where all runs have counted them."""
    with plt.rc_context(STYLE):
        panels = [("step", "loss"), ("step", "accuracy"), *[("cpu_seconds", "loss")] * counted(found)]
        figure, axes = plt.subplots(1, len(panels), figsize=(11, 3.4))
        for (across, metric), axis in zip(panels, axes, strict=True):
            for group in found:
                plot_curve(axis, group, across, metric)
            axis.set_xlabel(ACROSS[across])
            if metric == "loss":
                axis.set_yscale("log")
                axis.set_ylabel("validation loss (nats per token)")
            else:
                axis.set_ylabel("validation accuracy (share of tokens)")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def sweep(found: Sequence[Group], setting: str, label: str, reference: Group | None) -> Figure:
    """Final loss and accuracy against one coefficient, every seed a point; the reference as a band."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, 2, figsize=(8, 3.2))
        values = [group.value(setting) for group in found]
        places = np.arange(len(values))
        for metric, axis in zip(("loss", "accuracy"), axes, strict=True):
            finals = [group.final(metric) for group in found]
            colour = COLOURS[found[0].model]
            axis.plot(places, [f.mean() for f in finals], "-o", color=colour, ms=4, label="mean over seeds")
            for place, final in zip(places, finals, strict=True):
                axis.plot([place] * len(final), final, "x", color="#555555", ms=4)
            if reference is not None:
                final = reference.final(metric)
                axis.axhline(final.mean(), color=COLOURS[reference.model], ls="--", lw=1.2, label=reference.label)
                axis.axhspan(final.min(), final.max(), color=COLOURS[reference.model], alpha=0.12, lw=0)
            axis.set_xticks(places, [f"{value:g}" for value in values])
            axis.set_xlabel(label)
            _scale(axis, metric)
        axes[0].legend(loc="best")
    return figure


def families(
    families: Mapping[str, Sequence[Group]], styles: Sequence[tuple[str, str]], linear: Group | None
) -> Figure:
    """Final loss of several families side by side for each (β, γ), each in its (colour, marker); every seed hollow."""
    with plt.rc_context(STYLE):
        figure, axis = plt.subplots(figsize=(7.4, 3.2))
        offsets = 0.26 * (np.arange(len(families)) - (len(families) - 1) / 2)
        for offset, (label, family), (colour, marker) in zip(offsets, families.items(), styles, strict=True):
            for place, group in enumerate(family):
                final = group.final("loss")
                name = label if place == 0 else None
                axis.plot([place + offset] * len(final), final, marker, color=colour, ms=4, mfc="none")
                axis.plot(place + offset, final.mean(), marker, color=colour, ms=7, label=name)
        if linear is not None:
            final = linear.final("loss")
            axis.axhline(final.mean(), color=COLOURS["linear"], ls="--", lw=1.2, label="linear attention, mean")
        first = next(iter(families.values()))
        labels = [f"β {group.value('model.beta'):g}\nγ {group.value('model.gamma'):g}" for group in first]
        axis.set_xticks(range(len(first)), labels)
        _scale(axis, "loss")
        axis.legend(loc="best")
    return figure


def _scale(axis: Axes, metric: str) -> None:
    if metric == "loss":
        axis.set_yscale("log")
        axis.set_ylabel("final validation loss (nats per token)")
    else:
        axis.set_ylabel("final validation accuracy")
