"""Runs as entries of a comparison: each model at the learning rate that validation data chose, every seed of it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ..experiments import EXPERIMENTS
from ..experiments.experiment import Variant
from ..experiments.gap import CONVOLVED, UNDECAYED, GapTask
from ..experiments.runs import Request
from ..experiments.sizes import parameter_count
from ..experiments.study_runs import asked, at_rate
from .collect import Run

Key = tuple[str, str, str, tuple[str, ...]]  # experiment, model, scale, settings
LEAST_SKILL = 0.1  # from chance to perfection: who is below it has not learned the task
LEAST_GAP = 0.02  # between linear and softmax, as a share of linear's error, where seeds are too few to tell
ENOUGH_SEEDS = 3


@dataclass(frozen=True)
class Entry:
    """One model of one comparison."""

    label: str
    variant: Variant
    request: Request  # of the first seed
    runs: tuple[Run, ...]
    tried: int  # learning rates of which finished runs chose this one

    @property
    def rate(self) -> float:
        return float(self.request.config.train.learning_rate)

    @property
    def parameters(self) -> int:
        return parameter_count(self.request)

    def scores(self, metric: str) -> np.ndarray:
        return np.array([score(run, metric) for run in self.runs])


def score(run: Run, metric: str) -> float:
    """On the test split; of tasks without one, whose validation data is always fresh, at the last step."""
    return run.test[metric] if metric in run.test else run.final(metric)


def index(runs: Iterable[Run]) -> dict[Key, dict[int, Run]]:
    """The runs by what was asked for, and then by seed."""
    found: dict[Key, dict[int, Run]] = {}
    for run in runs:
        found.setdefault(key(run.request), {})[run.request.seed] = run
    return found


def key(request: Request) -> Key:
    return request.experiment, request.model, request.scale, tuple(sorted(request.settings))


def keys(lines: Iterable[tuple[str, Variant]], scale: str) -> frozenset[Key]:
    """Of every experiment and variant, at each learning rate that is tried."""
    return frozenset(
        key(at_rate(asked(experiment, variant, scale), rate))
        for experiment, variant in lines
        if scale in EXPERIMENTS[experiment].minutes  # of the scales that it has
        for rate in variant.rates
    )


def label(variant: Variant) -> str:
    """A model's name with what makes it another one."""
    words = [variant.model]
    words += ["+ convolution"] if CONVOLVED in variant.settings else []
    words += ["without decay"] if UNDECAYED in variant.settings else []
    words += ["reflecting"] if "model.negative=true" in variant.settings else []
    return " ".join(words)


def chosen(experiment: str, variant: Variant, scale: str, found: dict[Key, dict[int, Run]]) -> Entry | None:
    """The variant at the rate whose first seed has the lowest validation loss, of the rates that were run."""
    best: tuple[float, Request] | None = None
    tried = 0
    for factor in variant.rates:
        request = at_rate(asked(experiment, variant, scale), factor)
        first = found.get(key(request), {}).get(0)
        if first is None:
            continue
        tried += 1
        loss = float(first.validation["loss"].min())
        if best is None or loss < best[0]:
            best = loss, request
    if best is None:
        return None
    seeds = found[key(best[1])]
    return Entry(label(variant), variant, best[1], tuple(seeds[seed] for seed in sorted(seeds)), tried)


def entries(
    experiment: str, variants: Sequence[Variant], scale: str, found: dict[Key, dict[int, Run]]
) -> dict[str, Entry]:
    """The runs by label, in the order of the variants; variants that were not run are missing."""
    made = (chosen(experiment, variant, scale, found) for variant in variants)
    return {entry.label: entry for entry in made if entry is not None}


def error(values: np.ndarray, task: GapTask) -> np.ndarray:
    """Lower is better, zero is perfect."""
    return 1 - values if task.higher else values


def shares(values: np.ndarray, linear: np.ndarray, softmax: np.ndarray) -> np.ndarray:
    """(linear - model) / (linear - softmax) of every seed, by the means of both: 0 is linear, 1 is softmax."""
    return np.asarray((linear.mean() - values) / (linear.mean() - softmax.mean()))


def at_chance(task: GapTask, values: np.ndarray) -> bool:
    """Whether these scores are hardly better than knowing nothing of the sequence."""
    chance = error(np.array([task.chance]), task)[0]
    return bool(1 - error(values, task).mean() / chance < LEAST_SKILL)


def no_gap(task: GapTask, linear: np.ndarray, softmax: np.ndarray) -> str:
    """Why the share of the gap means nothing here; empty where it does."""
    if at_chance(task, softmax):
        return "softmax is at chance"
    worse, better = error(linear, task), error(softmax, task)
    if min(len(worse), len(better)) >= ENOUGH_SEEDS and better.max() < worse.min():
        return ""
    wide = max(np.ptp(worse), np.ptp(better)) / 2
    if worse.mean() - better.mean() <= max(LEAST_GAP * worse.mean(), wide):
        return "softmax is not clearly better than linear"
    return ""
