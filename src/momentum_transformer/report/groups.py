"""Runs that differ in the seed only are one line of a figure or table: mean and spread."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ..experiments.experiment import Study
from .collect import Run
from .entries import chosen, index
from .tables import spread


@dataclass(frozen=True)
class Group:
    label: str
    model: str
    settings: tuple[str, ...]
    runs: tuple[Run, ...]
    tried: int = 1  # learning rates of which these runs have the best

    def final(self, metric: str) -> np.ndarray:
        return np.array([run.final(metric) for run in self.runs])

    def test(self, metric: str) -> np.ndarray:
        """On the test split, for the runs that were scored on it."""
        return np.array([run.test[metric] for run in self.runs if metric in run.test])

    def stacked(self, metric: str) -> np.ndarray:
        """The curve of each run, at the evaluations that all of them have had."""
        shortest = min(len(run.validation[metric]) for run in self.runs)
        return np.stack([run.validation[metric][:shortest] for run in self.runs])

    def curve(self, metric: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean, lowest and highest over seeds, at each evaluation."""
        values = self.stacked(metric)
        return values.mean(0), values.min(0), values.max(0)

    def cpu_seconds(self, steps: int, digits: int) -> str:
        """CPU seconds for `steps` training steps, of the runs that counted them."""
        counted = [run.cpu_seconds_per_step for run in self.runs]
        known = [steps * seconds for seconds in counted if seconds is not None]
        return spread(known, digits) if known else "–"

    def processors(self) -> set[str | None]:
        """Those that trained the runs."""
        return {run.provenance.get("cpu") for run in self.runs}

    @property
    def seeds(self) -> int:
        return len(self.runs)

    def value(self, setting: str) -> float:
        """The value given to a setting by --set."""
        return float(next(text.partition("=")[2] for text in self.settings if text.startswith(f"{setting}=")))

    def has(self, setting: str) -> bool:
        return any(text == setting or text.startswith(f"{setting}=") for text in self.settings)


def scales(runs: Iterable[Run]) -> list[str]:
    return sorted({run.request.scale for run in runs})


def groups(study: Study, scale: str, runs: Iterable[Run]) -> list[Group]:
    """The study's variants that were run at this scale, in the study's order.

    Where a variant has several learning rates, validation data choose one of those that were run.
    """
    runs = list(runs)
    found: dict[tuple[str, tuple[str, ...]], list[Run]] = defaultdict(list)
    for run in runs:
        if run.request.experiment == study.experiment and run.request.scale == scale:
            found[run.request.model, tuple(run.request.settings)].append(run)
    if not found:  # the experiment may not even have this scale
        return []
    rated = index(runs)
    result = []
    for variant in study.variants:
        members: Sequence[Run] = found.get((variant.model, variant.settings), [])
        tried = 1
        if len(variant.rates) > 1:
            entry = chosen(study.experiment, variant, scale, rated)
            members, tried = ((), 0) if entry is None else (entry.runs, entry.tried)
        if members:
            changed = ", ".join(setting.removeprefix("model.").replace("=", " ") for setting in variant.settings)
            label = f"{variant.model}, {changed}" if changed else variant.model
            by_seed = sorted(members, key=lambda run: run.request.seed)
            result.append(Group(label, variant.model, variant.settings, tuple(by_seed), tried))
    return result
