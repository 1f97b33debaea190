"""The section of a translation experiment: Table 5 beside ours, BLEU against refinements, and translations."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..experiments.translation.translation_scales import PAPER_TABLE, TEACHER
from ..experiments.translation.translation_scoring import read_steps
from .figures import COLOURS, DASHES, MARKERS, OTHER, STYLE
from .groups import Group
from .section import Section, separated
from .tables import Table, spread

SIDES = ("source", "target")
SHOWN = 3  # translations step by step
WAYS = tuple((side, alone, how) for alone, how in ((True, "one by one"), (False, "in batches")) for side in SIDES)
CLAIMS = (
    ("momentum", "linear", "Momentum attention translates better than linear attention"),
    ("momentum-connection", "momentum", "The momentum connection translates better than momentum attention alone"),
    ("adaptive-momentum", "momentum-connection", "Adaptive momentum translates better than the tuned connection"),
    ("softmax", "momentum", "Softmax translates better than momentum attention"),
)


def translation_section(found: list[Group], scale: str, title: str) -> Section | None:
    found = [scored for group in found if (scored := _scored(group)).runs]
    if not found:
        return None
    corpus, title = found[0].runs[0].request.experiment, f"{title}, scale {scale}"
    return Section(
        f"{corpus}-{scale}",
        title,
        _intro(found, scale),
        _figure(found),
        _table(found, title),
        tuple(_claims(found)),
        more=(_speeds(found, title), *_steps(found)),
    )


def _scored(group: Group) -> Group:
    """The runs that came to be scored."""
    return replace(group, runs=tuple(run for run in group.runs if run.translations))


def is_distilled(group: Group) -> bool:
    return group.has("data.teacher")


def scores(group: Group, metric: str, *, lengths: str = "predicted", refinements: int | None = None) -> np.ndarray:
    """A score of each run on the test text, after so many refinements, or all of them."""
    values = []
    for run in group.runs:
        lines = [line for line in run.translations if line["lengths"] == lengths]
        chosen = [line for line in lines if refinements in (None, line["refinements"])]
        if chosen:
            values.append(max(chosen, key=lambda line: line["refinements"])[metric])
    return np.array(values)


def bleu(group: Group) -> np.ndarray:
    return scores(group, "bleu")


def speed(group: Group, side: str, *, alone: bool) -> float | None:
    """Tokens per second, the best of the seeds: one sentence at a time, or in batches."""
    lines = [line for run in group.runs for line in run.throughput if (line["batch_tokens"] == 1) == alone]
    return max((float(line[side]) for line in lines), default=None)


def _table(found: list[Group], title: str) -> Table:
    columns = ("model", "targets", "BLEU", "chrF", "tokenised BLEU", "BLEU, true lengths", "first draft: BLEU")
    rows = []
    for group in found:
        measured = (
            bleu(group),
            scores(group, "chrf"),
            scores(group, "tokenized_bleu"),
            scores(group, "bleu", lengths="reference"),
            scores(group, "bleu", refinements=0) if group.model != TEACHER else np.zeros(0),
        )
        paper = PAPER_TABLE.get(group.model)
        rows.append(
            (
                group.model,
                _targets(group),
                *(spread(values, 2) if len(values) else "–" for values in measured),
                f"{paper[0]:.2f}" if paper else "–",
                str(group.seeds),
            )
        )
    return Table(title, (*columns, "paper: BLEU", "seeds"), tuple(rows))


def _speeds(found: list[Group], title: str) -> Table:
    columns = ("model", "targets", *(f"{side} tokens/s, {how}" for side, _, how in WAYS))
    rows = []
    for group in found:
        speeds = [speed(group, side, alone=alone) for side, alone, _ in WAYS]
        paper = PAPER_TABLE.get(group.model)
        rows.append(
            (
                group.model,
                _targets(group),
                *("–" if value is None else f"{value:,.0f}" for value in speeds),
                f"{paper[1]:,.0f}" if paper else "–",
                group.cpu_seconds(100, 1),
            )
        )
    return Table(f"{title}: speed", (*columns, "paper: tokens/s", "training: CPU s per 100 steps"), tuple(rows))


def _targets(group: Group) -> str:
    return "distilled" if is_distilled(group) else "raw"


def _claims(found: list[Group]) -> list[str]:
    findings = []
    for distilled in (False, True):
        kind = "distilled" if distilled else "raw"
        by_model = {group.model: bleu(group) for group in found if is_distilled(group) == distilled}
        findings += [
            f"{text} ({kind} targets): {separated(-by_model[better], -by_model[worse])}."
            for better, worse, text in CLAIMS
            if better in by_model and worse in by_model
        ]
    pairs = {
        model: members
        for model in dict.fromkeys(group.model for group in found)
        if len(members := sorted((g for g in found if g.model == model), key=is_distilled)) > 1
    }
    gains = [f"{model} {bleu(after).mean() - bleu(before).mean():+.2f}" for model, (before, after) in pairs.items()]
    return [*findings, f"What distillation adds, in BLEU: {', '.join(gains)}."] if gains else findings


def _intro(found: list[Group], scale: str) -> str:
    run = next((group for group in found if group.model != TEACHER), found[0]).runs[0]
    config, data = run.config, run.provenance.get("data", {})
    pairs, signature = data.get("pairs", {}), run.translations[0]["bleu_signature"]
    text = (
        f"Scale {scale}: {pairs.get('training', 0):,} pairs to learn from, {config.data.pieces:,} pieces, "
        f"width {config.model.width}, {config.model.depth} layers, {config.train.steps:,} steps of "
        f"{config.train.batch_size:,} tokens, {config.refine.decoding} refinements. BLEU is of the detokenised test "
        f"text ({pairs.get('test', 0):,} sentences), by sacrebleu ({signature}), with predicted lengths. "
    )
    teacher = next((group.runs[0].config.train for group in found if group.model == TEACHER), None)
    if teacher is not None:
        text += (
            "Distilled targets are the translations of the autoregressive softmax model, which learned from the "
            f"references in {teacher.steps:,} steps of {teacher.batch_size:,} tokens. "
        )
    if run.request.experiment != "iwslt16" or scale != "paper":
        text += "The paper's numbers are of its own corpus and size: compare them with each other, not with ours. "
    text += "Speeds were measured when each training ended; docs/performance.md compares the models in one run."
    return f"{text} The data is {data['note']}." if data.get("note") else text


def _figure(found: Sequence[Group]) -> Figure:
    """BLEU against refinements, for raw and for distilled targets; tokens per second as bars."""
    kinds = [kind for kind in (False, True) if any(is_distilled(g) == kind and g.model != TEACHER for g in found)]
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, len(kinds) + 1, figsize=(11, 3.4), squeeze=False)
        for axis, kind in zip(axes[0], kinds, strict=False):
            _refinements(axis, found, kind)
        _bars(axes[0, -1], [group for group in found if not is_distilled(group)])
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=max(1, len(labels)))
    return figure


def _refinements(axis: Axes, found: Sequence[Group], distilled: bool) -> None:
    for group in found:
        if group.model == TEACHER:
            axis.axhline(bleu(group).mean(), color="#777777", ls=":", lw=1.2, label="autoregressive softmax")
            continue
        if is_distilled(group) != distilled:
            continue
        lines = [line for line in group.runs[0].translations if line["lengths"] == "predicted"]
        steps = [line["refinements"] for line in lines]
        values = [scores(group, "bleu", refinements=step) for step in steps]
        (drawn,) = axis.plot(steps, [v.mean() for v in values], color=COLOURS[group.model], label=group.model, lw=1.4)
        drawn.set(ls=DASHES[group.model], marker=MARKERS[group.model], ms=4)
        bounds = [v.min() for v in values], [v.max() for v in values]
        axis.fill_between(steps, *bounds, color=COLOURS[group.model], alpha=0.12, lw=0)
        axis.set_xticks(steps)
    axis.set_title("distilled targets" if distilled else "raw targets", fontsize=9)
    axis.set_xlabel("refinements")
    axis.set_ylabel("test BLEU")
    axis.set_ylim(bottom=0)


def _bars(axis: Axes, found: Sequence[Group]) -> None:
    places = np.arange(len(found))[::-1]
    for alone, offset in ((False, 0.2), (True, -0.2)):
        speeds = [speed(group, "source", alone=alone) or 0.0 for group in found]
        colours: list[Any] = [COLOURS.get(group.model, OTHER) for group in found]
        drawn = axis.barh(
            places + offset, speeds, 0.38, color=colours, hatch="///" if alone else "", edgecolor="white"
        )
        axis.bar_label(drawn, fmt="{:,.0f}", padding=3, fontsize=7)
    axis.set_xscale("log")
    axis.margins(x=0.25)
    axis.set_axisbelow(True)
    axis.set_yticks(places, [group.model for group in found])
    axis.set_xlabel("source tokens/s (hatched: one by one)")


def _steps(found: Sequence[Group]) -> tuple[Table, ...]:
    """A few sentences, translated step by step by the first seed of each model."""
    tables = []
    kept = {group.label: group.runs[0].steps for group in found}
    read = {label: read_steps(path)[:SHOWN] for label, path in kept.items() if path is not None}
    for i in range(min(map(len, read.values()), default=0)):
        first = next(iter(read.values()))[i]
        rows = [("reference", "", first["reference"])]
        for group in found:
            if group.label in read:
                steps = read[group.label][i]["steps"]
                rows += [
                    (f"{group.model}, {_targets(group)}" if step == 0 else "", str(step), text)
                    for step, text in enumerate(steps)
                    if step == 0 or text != steps[step - 1]  # what a refinement left as it was is not repeated
                ]
        tables.append(Table(f"Step by step: {first['source']}", ("model", "refinements", "translation"), tuple(rows)))
    return tuple(tables)
