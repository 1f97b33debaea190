"""Runs of no study: those of one experiment, scale and data side by side, runs of one setting as one line."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from ..experiments import EXPERIMENTS
from .collect import BESIDES, Run, last_text
from .figures import STYLE, plot_curve
from .groups import Group
from .section import Section, separated
from .tables import Table, spread

MOST_GROUPS = 12  # lines of a figure
MOST_METRICS = 4  # columns of a table
NAMED = ("data.source=", "data.target=")  # settings that say which data, not which model
# by what runs are compared, the first that all have: the loss of a token depends on what the tokens are
COMPARED = {"bits_per_byte": ("bits/byte", "fewer bits a byte"), "loss": ("loss", "a lower loss")}


def other_sections(runs: Sequence[Run]) -> list[Section]:
    """One for each experiment, scale and data of one's own."""
    together: dict[tuple[str, str, str], list[Run]] = defaultdict(list)
    for run in runs:
        source = str(getattr(run.config.data, "source", ""))
        together[run.request.experiment, run.request.scale, source].append(run)
    return [
        _section(*key, number, _groups(members)) for number, (key, members) in enumerate(sorted(together.items()), 1)
    ]


def _groups(runs: Sequence[Run]) -> list[Group]:
    """Runs of one model and the same settings, whatever their seeds and places."""
    found: dict[tuple[str, tuple[str, ...]], list[Run]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.request.seed):
        settings = (text for text in run.request.settings if not text.startswith(NAMED))
        found[run.request.model, tuple(sorted(settings))].append(run)
    order = list(EXPERIMENTS[runs[0].request.experiment].models)
    keys = sorted(found, key=lambda key: (order.index(key[0]), key[1]))
    return [
        Group(", ".join((model, *settings)), model, settings, tuple(found[model, settings]))
        for model, settings in keys
    ]


def _section(experiment: str, scale: str, source: str, number: int, found: list[Group]) -> Section:
    files = ", ".join(Path(name).name for name in source.split(","))
    title = f"{EXPERIMENTS[experiment].title}{': ' * bool(files)}{files}, scale {scale}"
    runs = [run for group in found for run in group.runs]
    metric = next(name for name in COMPARED if all(name in run.validation for run in runs))
    last = _shared([run.validation for run in runs])
    tested = _shared([run.test for run in runs])
    columns = (*(name.replace("_", " ") for name in last), *(f"test {name.replace('_', ' ')}" for name in tested))
    rows = tuple(
        (
            group.label,
            *(spread(group.final(name), 4) for name in last),
            *(spread(group.test(name), 4) for name in tested),
            _seeds(group),
        )
        for group in found
    )
    table = Table(title, ("model", *columns, "seed numbers"), rows)
    return Section(
        f"{experiment}-{scale}-{number}-runs" if source else f"{experiment}-{scale}-runs",
        title,
        f"Scale {scale}. Scores are those on validation data at the last step, and of the best checkpoint on the "
        "test split where there is one; lines are means over runs of one setting, bands go from lowest to highest.",
        _figure(found[:MOST_GROUPS], metric),
        table,
        _findings(found, metric),
        gallery=tuple((group.label, run.samples) for group, run in _samples(found) if run.samples is not None),
        texts=tuple((group.label, text) for group, run in _samples(found) if (text := last_text(run))),
    )


def _shared(scores: Sequence[Mapping[str, Any]]) -> list[str]:
    """The first scores that all of these have, without what is the loss once more, as nats a character of bytes."""
    names = [name for name, value in scores[0].items() if name not in BESIDES and not isinstance(value, str)]
    shared = [name for name in names if all(name in score for score in scores)]
    same = {name for name in shared if all(np.array_equal(score[name], score.get("loss", np.nan)) for score in scores)}
    return [name for name in shared if name == "loss" or name not in same][:MOST_METRICS]


def _samples(found: Sequence[Group]) -> list[tuple[Group, Run]]:
    """The first run of each line stands for it."""
    return [(group, group.runs[0]) for group in found]


def _seeds(group: Group) -> str:
    """Which, and how often where a seed was run in several places."""
    seeds = [run.request.seed for run in group.runs]
    distinct = sorted(set(seeds))
    shown = ", ".join(map(str, distinct))
    return shown if len(seeds) == len(distinct) else f"{shown} ({len(seeds)} runs)"


def _findings(found: Sequence[Group], metric: str) -> tuple[str, ...]:
    """Whether the two lowest scores can be told apart."""
    if len(found) < 2:
        return ()
    first, second, *_ = sorted(found, key=lambda group: group.final(metric).mean())
    verdict = separated(first.final(metric), second.final(metric))
    return (f"{first.label} has {COMPARED[metric][1]} than {second.label}, the next: {verdict}.",)


def _figure(found: Sequence[Group], metric: str) -> Figure:
    with plt.rc_context(STYLE):
        figure, axis = plt.subplots(figsize=(8, 3.4))
        for group in found:
            plot_curve(axis, group, "step", metric)
        axis.set_xlabel("training steps")
        axis.set_ylabel(f"validation {COMPARED[metric][0]}")
        axis.legend(loc="best")
    return figure
