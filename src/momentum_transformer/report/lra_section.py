"""Long Range Arena in the report: Table 4 beside ours, learning curves with both baselines, and what held."""

from collections.abc import Sequence
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..experiments.experiment import Study
from ..experiments.lra.lra_scales import BASELINE, PAPER_TABLE, TASKS
from .collect import Run
from .figures import COLOURS, DASHES, MARKERS, STYLE
from .groups import Group, groups
from .section import Section, separated
from .tables import Table, spread

Found = dict[str, dict[str, Group]]  # task → model → runs
CLAIMS = (
    ("momentum", "linear", "Momentum attention is more accurate than linear attention"),
    ("adaptive-momentum", "linear", "Adaptive momentum is more accurate than linear attention"),
    ("adaptive-momentum", "momentum", "Adaptive momentum is more accurate than momentum attention alone"),
    ("adaptive-momentum", "softmax", "Adaptive momentum is more accurate than softmax"),
)


def lra_sections(study: Study, scale: str, runs: Sequence[Run]) -> list[Section]:
    """One section for the tasks that were run at this scale; none where there are none."""
    found: Found = {}
    for task in study.experiments:
        alone = replace(study, experiment=task, others=())
        found[task] = {group.model: group for group in groups(alone, scale, runs)}
    found = {task: models for task, models in found.items() if models}
    if not found:
        return []
    title = f"{study.title}, scale {scale}"
    section = Section(
        f"{study.name}-{scale}",
        title,
        _intro(found, scale),
        _figure(found),
        _table(study, found, title),
        (*_claims(found), *_floors(found)),
        more=_times(study, found, title),
    )
    return [section]


def majority(models: dict[str, Group]) -> float | None:
    """The accuracy of always guessing the most common class, in %."""
    data = next(iter(models.values())).runs[0].provenance.get("data", {})
    return 100 * data["majority"] if "majority" in data else None


def _models(study: Study, found: Found) -> list[str]:
    return [variant.model for variant in study.variants if any(variant.model in models for models in found.values())]


def _table(study: Study, found: Found, title: str) -> Table:
    """Ours, and in parentheses the paper's, as the paper sets other people's numbers beside its own."""
    columns = ["model", *(TASKS[task].title for task in found)]
    columns += ["average"] if len(found) == len(TASKS) else []
    rows = []
    for model in _models(study, found):
        paper = dict(zip(TASKS, PAPER_TABLE.get(model, ()), strict=False))
        row, means = [model], []
        for task, models in found.items():
            scores = 100 * models[model].test("accuracy") if model in models else np.zeros(0)
            means += [scores.mean()] if len(scores) else []
            printed = f" ({paper[task]:.2f})" if task in paper else ""
            row.append((spread(scores, 2) if len(scores) else "–") + printed)
        if len(found) == len(TASKS):
            printed = f" ({np.mean(list(paper.values())):.2f})" if paper else ""
            row.append((f"{np.mean(means):.2f}" if len(means) == len(TASKS) else "–") + printed)
        rows.append(tuple(row))
    guessing = [majority(models) for models in found.values()]
    row = ["majority class", *("–" if guess is None else f"{guess:.2f}" for guess in guessing)]
    known = [guess for guess in guessing if guess is not None]
    row += [f"{np.mean(known):.2f}" if len(known) == len(TASKS) else "–"] if len(found) == len(TASKS) else []
    rows.append(tuple(row))
    return Table(f"{title}: test accuracy in %, ours (the paper's)", tuple(columns), tuple(rows))


def _times(study: Study, found: Found, title: str) -> tuple[Table, ...]:
    """CPU seconds, where any run has counted them."""
    columns = ("model", *(TASKS[task].title for task in found))
    rows = []
    for model in _models(study, found):
        times = (models[model].cpu_seconds(1000, 0) if model in models else "–" for models in found.values())
        rows.append((model, *times))
    if all(cell == "–" for row in rows for cell in row[1:]):
        return ()
    return (Table(f"{title}: CPU seconds of training per 1,000 steps", columns, tuple(rows)),)


def _claims(found: Found) -> list[str]:
    findings = []
    for better, worse, text in CLAIMS:
        verdicts = []
        for task, models in found.items():
            scores = [models[model].test("accuracy") if model in models else np.zeros(0) for model in (better, worse)]
            if all(map(len, scores)):
                verdicts.append(f"{TASKS[task].title}: {separated(-scores[0], -scores[1])}")
        if verdicts:
            findings.append(f"{text}. {'; '.join(verdicts)}.")
    return findings


def _floors(found: Found) -> list[str]:
    """Models that are not above guessing or counting tokens by more than two standard errors."""
    findings = []
    for task, models in found.items():
        size = next(iter(models.values())).runs[0].provenance.get("data", {}).get("examples", {}).get("test", 0)
        bag = models[BASELINE].test("accuracy") if BASELINE in models else np.zeros(0)
        floors = [
            ("the majority class", majority(models)),
            ("a bag of tokens", 100 * bag.mean() if len(bag) else None),
        ]
        for name, floor in floors:
            if floor is None or not size:
                continue
            margin = 2 * np.sqrt(floor * (100 - floor) / size)
            tested = {model: 100 * group.test("accuracy") for model, group in models.items() if model != BASELINE}
            low = [model for model, scores in tested.items() if len(scores) and scores.mean() <= floor + margin]
            listed = ", ".join(low) if low else "none"
            findings.append(
                f"{TASKS[task].title}: not above {name} ({floor:.1f} %) by two standard errors of a test on {size:,} "
                f"examples: {listed}."
            )
    return findings


def _intro(found: Found, scale: str) -> str:
    parts = []
    for task, models in found.items():
        run = next(iter(models.values())).runs[0]
        data = run.provenance.get("data", {})
        counts, official = data.get("examples", {}), data.get("official", {})
        text = f"{TASKS[task].title}: {run.config.train.steps:,} steps of {run.config.train.batch_size}"
        if counts:
            text += f", sequences of up to {data['longest']:,} tokens, {counts['train']:,} to train on"
            text += f" (officially {official['train']:,})" if counts["train"] != official["train"] else ""
        parts.append(text)
    text = (
        f"Scale {scale}. {'; '.join(parts)}. Curves are of validation data, which also chooses the checkpoint that is "
        "tested; lines are means over seeds, bands go from the lowest to the highest. Grey: the majority class "
        "(dotted) and a bag of tokens (dashed), which know nothing of order."
    )
    if scale != "paper":
        text += " The paper's sequences are longer and its models are trained on more examples: compare with care."
    return text


def _figure(found: Found) -> Figure:
    """Validation accuracy against steps, one panel a task."""
    with plt.rc_context(STYLE):
        columns = min(3, len(found))
        rows = -(-len(found) // columns)
        figure, axes = plt.subplots(rows, columns, figsize=(11, 3.1 * rows + 0.5), squeeze=False)
        for axis, (task, models) in zip(axes.flat, found.items(), strict=False):
            _panel(axis, task, models)
        for axis in axes.flat[len(found) :]:
            axis.set_visible(False)
        drawn = {label: h for axis in axes.flat for h, label in zip(*axis.get_legend_handles_labels(), strict=True)}
        figure.legend(drawn.values(), drawn.keys(), loc="outside lower center", ncols=4)
    return figure


def _panel(axis: Axes, task: str, models: dict[str, Group]) -> None:
    for model, group in models.items():
        x = group.runs[0].validation["step"]
        mean, low, high = (100 * values for values in group.curve("accuracy"))
        if model == BASELINE:
            axis.axhline(mean.max(), color="#777777", ls="--", lw=1.2, label=BASELINE)
            continue
        (line,) = axis.plot(x, mean, color=COLOURS[model], ls=DASHES[model], lw=1.4, label=model)
        line.set(marker=MARKERS[model], ms=3.5, markevery=max(1, len(x) // 6))
        axis.fill_between(x, low, high, color=COLOURS[model], alpha=0.12, lw=0)
    guess = majority(models)
    if guess is not None:
        axis.axhline(guess, color="#777777", ls=":", lw=1.2, label="majority class")
    axis.set_title(TASKS[task].title, fontsize=9)
    axis.set_xlabel("training steps")
    axis.set_ylabel("validation accuracy (%)")
