"""Runs on data of one's own: a section for each table and each folder of pictures."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ..experiments.labelling import TABLE
from ..experiments.pictures.picture_task import IMAGES
from .collect import Run
from .figures import STYLE, plot_curve
from .groups import Group
from .picture_section import picture_section
from .section import Section
from .tables import Table, spread

OWN = (TABLE.name, IMAGES.name)
MOST_LABELS = 30  # of a confusion matrix that is shown whole
MOST_NUMBERS = 10  # labels of the largest matrix whose cells show numbers
CELL, DEEPEST = "#0072b2", 0.6  # cell colour and its highest opacity: numbers stay legible on it
NAMED = ("data.source=", "data.text_column=", "data.label_column=")  # settings that say which data, not which model


def own_sections(runs: Iterable[Run]) -> list[Section]:
    """Runs on the same data at the same scale are compared."""
    together: dict[tuple[str, str, str], list[Run]] = defaultdict(list)
    for run in runs:
        if run.request.experiment in OWN:
            together[run.request.experiment, run.request.scale, run.config.data.source].append(run)
    sections = []
    for number, ((experiment, scale, source), members) in enumerate(sorted(together.items()), start=1):
        found = _groups(members)
        title = f"{TABLE.title if experiment == TABLE.name else IMAGES.title}: {Path(source).name}"
        made = table_section(found, scale, title) if experiment == TABLE.name else picture_section(found, scale, title)
        word = re.sub(r"[^\w.-]+", "-", Path(source).name)[:40]
        sections.append(replace(made, name=f"{experiment}-{scale}-{number}-{word}"))
    return sections


def _groups(runs: Sequence[Run]) -> list[Group]:
    found: dict[tuple[str, tuple[str, ...]], list[Run]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.request.seed):
        settings = tuple(text for text in run.request.settings if not text.startswith(NAMED))
        found[run.request.model, settings].append(run)
    groups = []
    for (model, settings), members in sorted(found.items()):
        # runs that were evaluated at other steps have no common curve
        same = [run for run in members if np.array_equal(run.validation["step"], members[0].validation["step"])]
        groups.append(Group(", ".join((model, *settings)), model, settings, tuple(same)))
    return groups


def table_section(found: list[Group], scale: str, title: str) -> Section:
    best = max((run for group in found for run in group.runs), key=lambda run: run.test.get("accuracy", 0.0))
    data = best.provenance.get("data", {})
    rows = [
        (group.label, _percent(group.test("accuracy")), _percent(group.test("f1")), str(group.seeds))
        for group in found
    ]
    if "majority" in data:
        rows.append(("always the most common label", f"{100 * data['majority']:.2f}", "–", ""))
    table = Table(f"{title}, scale {scale}", ("model", "test accuracy (%)", "macro F1 (%)", "seeds"), tuple(rows))
    counts = data.get("examples", {})
    sizes = ", ".join(f"{count:,} {part}" for part, count in counts.items())
    intro = (
        f"Scale {scale}; rows: {sizes}; texts are read up to {best.config.data.length:,} bytes. The test split is "
        "scored once, by the checkpoint that was best on validation data; curves are of validation data. "
    )
    findings = _confusions(best)
    whole = f"{title}, scale {scale}"
    return Section(f"table-{scale}", whole, intro, _figure(found, best), table, findings, more=_matrix(best))


def _percent(values: np.ndarray) -> str:
    return spread(100 * values, 2) if len(values) else "not scored"


def _confusions(run: Run) -> tuple[str, ...]:
    """The labels that are hardest, and what they are taken for most."""
    if not run.confusion:
        return ("The test split has not been scored.",)
    labels, counts = run.confusion["labels"], np.array(run.confusion["counts"])
    wrong = counts - np.diag(counts.diagonal())
    findings = [
        f"{len(labels)} labels; {int(wrong.sum()):,} of {int(counts.sum()):,} test rows were given a wrong one."
    ]
    for place in np.argsort(-wrong, axis=None, kind="stable")[:3]:
        row, column = divmod(int(place), len(labels))
        if wrong[row, column]:
            share = 100 * wrong[row, column] / counts[row].sum()
            findings.append(f"{labels[row]!r} was taken for {labels[column]!r} in {share:.1f} % of its rows.")
    return tuple(findings)


def _matrix(run: Run) -> tuple[Table, ...]:
    """Who was taken for whom, row by row a true label, and the F1 of each."""
    if not run.confusion:
        return ()
    labels, counts, f1 = (run.confusion[name] for name in ("labels", "counts", "f1"))
    whole = len(labels) <= MOST_LABELS
    columns = ("true label", *(f"→ {label}" for label in labels if whole), "rows", "F1 (%)")
    rows = tuple(
        (label, *(f"{count:,}" for count in row if whole), f"{sum(row):,}", f"{100 * f1[label]:.2f}")
        for label, row in zip(labels, counts, strict=True)
    )
    who = f"{run.request.model}, seed {run.request.seed}"
    return (Table(f"Confusion matrix of {who}, test split: true label → prediction", columns, rows),)


def _figure(found: Sequence[Group], best: Run) -> Figure:
    """Validation accuracy against steps, and the confusion matrix of the best run."""
    with plt.rc_context(STYLE):
        figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), width_ratios=(1.6, 1))
        for group in found:
            plot_curve(left, group, "step", "accuracy")
        left.set_xlabel("training steps")
        left.set_ylabel("validation accuracy")
        left.legend(loc="best")
        _heat(right, best)
    return figure


def _heat(axis: Axes, run: Run) -> None:
    if not run.confusion:
        axis.set_visible(False)
        return
    labels, counts = run.confusion["labels"], np.array(run.confusion["counts"], dtype=float)
    shares = counts / counts.sum(1, keepdims=True)
    axis.grid(False)
    axis.set_title(f"{run.request.model}, seed {run.request.seed}: % of each true label", fontsize=9)
    axis.set_xlabel("predicted")
    axis.set_ylabel("true")
    if len(labels) > MOST_LABELS:
        axis.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        return
    axis.set_xlim(-0.5, len(labels) - 0.5)
    axis.set_ylim(len(labels) - 0.5, -0.5)
    for (row, column), share in np.ndenumerate(shares):
        says = f"{labels[row]} taken for {labels[column]}: {counts[row, column]:,.0f} rows, {100 * share:.1f} %"
        cell = Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=CELL, alpha=DEEPEST * share, lw=0, label=says)
        axis.add_patch(cell)
        if len(labels) <= MOST_NUMBERS:
            axis.text(column, row, f"{100 * share:.0f}", ha="center", va="center")
    shown = [label if len(label) <= 12 else f"{label[:11]}…" for label in labels]
    axis.set_xticks(range(len(labels)), shown, rotation=90 if len(labels) > 4 else 0)
    axis.set_yticks(range(len(labels)), shown)
