"""Regression in context: the error after n examples, beside least squares and one gradient step."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from ..experiments.gap import CONVOLVED, GAP_TASKS
from .collect import Run
from .entries import Entry, Key, entries, keys
from .figures import COLOURS, DASHES, MARKERS, STYLE
from .section import Section
from .tables import Table

METHODS = {"least_squares": "least squares", "gradient_step": "one gradient step"}
SHOWN = 1e-4  # errors below it are drawn there: least squares ends at zero


def curve(entry: Entry, name: str) -> np.ndarray:
    """The mean over seeds of an error after 0, 1, 2, … examples."""
    points = entry.request.config.data.points
    return np.array([[run.test[f"{name}_{n}"] for n in range(points + 1)] for run in entry.runs]).mean(0)


def regression_section(scale: str, found: dict[Key, dict[int, Run]]) -> Section | None:
    """The section, where at least two models were run."""
    if not any((experiment, other) == ("regression", scale) for experiment, _, other, _ in found):
        return None
    task = next(task for task in GAP_TASKS if task.experiment == "regression")
    variants = [variant for variant in task.variants() if CONVOLVED not in variant.settings]
    made = entries("regression", variants, scale, found)
    made = {name: entry for name, entry in made.items() if all("error_0" in run.test for run in entry.runs)}
    if len(made) < 2:
        return None
    first = next(iter(made.values()))
    points = first.request.config.data.points
    shown = sorted({points // 8, points // 4, points // 2, points})
    lines = {name: curve(entry, "error") for name, entry in made.items()}
    methods = {label: curve(first, name) for name, label in METHODS.items()}
    rows = [(label, "", *(f"{values[n]:.3f}" for n in shown), "") for label, values in methods.items()]
    rows += [
        (name, f"{made[name].parameters:,}", *(f"{values[n]:.3f}" for n in shown), str(len(made[name].runs)))
        for name, values in lines.items()
    ]
    title = f"Linear regression in context, scale {scale}"
    columns = ("method", "parameters", *(f"after {n}" for n in shown), "seeds")
    intro = (
        f"Scale {scale}. Linear attention reads as a gradient step, momentum attention as the heavy ball, the delta "
        "rule as online steps: here they fit a line of their own from the examples before. The squared error at the "
        "next one, on the test split, in the mean over seeds; 1 is saying nothing. No method can have a lower mean "
        "error than least squares."
    )
    best = min(lines, key=lambda name: lines[name][-1])
    below = [name for name, values in lines.items() if values[-1] < methods["one gradient step"][-1]]
    findings = (
        f"After all {points} examples {best} has the smallest error, {lines[best][-1]:.3f}.",
        f"Better than one gradient step with the best step size, {methods['one gradient step'][-1]:.3f}: "
        + (", ".join(below) or "nobody")
        + ".",
    )
    table = Table(title, columns, tuple(rows))
    shown_runs = keys((("regression", variant) for variant in task.variants()), scale)
    return Section(f"regression-{scale}", title, intro, _figure(lines, methods), table, findings, shows=shown_runs)


def _figure(lines: dict[str, np.ndarray], methods: dict[str, np.ndarray]) -> Figure:
    with plt.rc_context(STYLE):
        figure, axis = plt.subplots(figsize=(7.2, 3.8))
        for (label, values), dash in zip(methods.items(), ("-", ":"), strict=True):
            axis.plot(np.maximum(values, SHOWN), color="#999999", ls=dash, lw=3, label=label, zorder=0)
        for name, values in lines.items():
            model, every = name.split(" ")[0], max(1, len(values) // 8)
            axis.plot(
                values,
                color=COLOURS[model],
                ls=DASHES[model],
                marker=MARKERS[model],
                ms=4,
                markevery=every,
                label=name,
            )
        axis.set_yscale("log")
        axis.set_xlabel("examples before")
        axis.set_ylabel("squared error (test)")
        axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure
