"""Two models side by side on every experiment that has runs of both, and what that says of a claim."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..experiments.gap import GAP_TASKS
from ..experiments.lra.lra_scales import TASKS as ARENA
from .collect import Run
from .section import separated
from .tables import spread

Verdict = Literal["yes", "no", "only with", "not decided"]
CLEAR, AT_CHANCE = "yes, in every pair of seeds", "both at chance"
NEAR_CHANCE = 0.02  # of accuracy: who is not above it has learned nothing


@dataclass(frozen=True)
class Measure:
    """A score of an experiment, and which way is better."""

    name: str
    higher: bool
    digits: int

    def of(self, run: Run) -> float | None:
        if self.name == "steps to 90 %":
            return run.steps_to(0.9) if "accuracy" in run.validation else None
        if self.name == "BLEU":
            lines = [line for line in run.translations if line["lengths"] == "predicted"]
            return float(lines[-1]["bleu"]) if lines else None
        if self.name in run.test:
            return run.test[self.name]
        return run.final(self.name) if self.name in run.validation else None


LOSS = Measure("loss", higher=False, digits=4)
SPEED = Measure("steps to 90 %", higher=False, digits=0)
ACCURACY = Measure("accuracy", higher=True, digits=4)
BITS = Measure("bits_per_dim", higher=False, digits=3)
# of runs without settings of their own
MEASURES = {
    "copy": LOSS,
    "mnist": BITS,
    "cifar10": BITS,
    "multi30k": Measure("BLEU", higher=True, digits=2),
    "text": Measure("bits_per_byte", higher=False, digits=3),
    "regression": LOSS,
    **dict.fromkeys((*ARENA, "recall", "recall-rewrite", "selective-copy", "parity", "s3"), ACCURACY),
}


CHANCE = {task.experiment: task.chance for task in GAP_TASKS if task.higher}  # accuracy


@dataclass(frozen=True)
class Comparison:
    """One experiment and scale: is the first model better than the second one?"""

    where: str
    measure: Measure
    better: np.ndarray
    worse: np.ndarray
    chance: float | None = None  # the accuracy of a guess

    @property
    def verdict(self) -> str:
        """In the words of `separated`; "clearly not" where the other one is better in every pair of seeds."""
        if self.chance is not None and max(self.better.mean(), self.worse.mean()) < self.chance + NEAR_CHANCE:
            return AT_CHANCE
        sign = -1 if self.measure.higher else 1
        said = separated(sign * self.better, sign * self.worse)
        return "clearly not" if said == "no" and separated(sign * self.worse, sign * self.better) == CLEAR else said

    def cells(self) -> tuple[str, ...]:
        seeds = min(len(self.better), len(self.worse))
        values = (spread(values, self.measure.digits) for values in (self.better, self.worse))
        return (self.where, self.measure.name, *values, str(seeds), self.verdict)


def compare(
    runs: Iterable[Run],
    better: str,
    worse: str,
    *,
    measures: dict[str, Measure] = MEASURES,
    settings: tuple[tuple[str, ...], tuple[str, ...]] = ((), ()),
) -> list[Comparison]:
    """On every experiment and scale where both models have finished runs with these settings."""
    found: dict[tuple[str, str], tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    guesses = {(experiment, "small"): chance for experiment, chance in CHANCE.items()}
    for run in runs:
        request, place = run.request, (run.request.experiment, run.request.scale)
        for side, wanted in enumerate(((better, settings[0]), (worse, settings[1]))):
            if (request.model, request.settings) != wanted or request.experiment not in measures:
                continue
            value = measures[request.experiment].of(run)
            if value is not None and request.scale != "tiny":
                found[place][side].append(value)
                if majority := run.provenance.get("data", {}).get("majority"):
                    guesses[place] = majority
    made = []
    for place in sorted(found, key=lambda place: (list(measures).index(place[0]), place[1])):
        first, second = found[place]
        if first and second:
            measure = measures[place[0]]
            chance = guesses.get(place) if measure is ACCURACY else None
            made.append(Comparison(", ".join(place), measure, np.array(first), np.array(second), chance))
    return made


def verdict_of(comparisons: Sequence[Comparison]) -> tuple[Verdict, str]:
    """Verdict and reason: yes or no if all comparisons agree, else where it holds, else not decided."""
    counts = Counter(comparison.verdict for comparison in comparisons)
    decided = len(comparisons) - counts[AT_CHANCE]
    clear, against = counts[CLEAR], counts["clearly not"]
    why = "; ".join(f"{count} × {said}" for said, count in counts.most_common()) or "there are no runs of both yet"
    if not comparisons or not (clear or against):
        return "not decided", why
    if clear == decided:
        return "yes", why
    if not clear:
        return "no", why
    holds = [comparison.where for comparison in comparisons if comparison.verdict == CLEAR]
    return "only with", f"clearly so on {' and '.join(holds)}; {why}"
