"""What the report knows of a run: what was asked, and the curves that came of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..experiments.configuration import ConfigurationError
from ..experiments.runs import Request, load_run
from ..training.run_directory import RunDirectory, RunError, find_runs

BESIDES = ("kind", "step", "seconds", "cpu_seconds")  # what is no score


@dataclass(frozen=True)
class Run:
    request: Request
    config: Any
    provenance: dict[str, Any]
    validation: dict[str, np.ndarray]  # step, loss, accuracy, cpu_seconds
    cpu_seconds: float | None  # of training steps; None in runs that did not count them
    test: dict[str, float]  # of the best checkpoint; empty where there is no test split
    throughput: tuple[dict[str, Any], ...]
    translations: tuple[dict[str, Any], ...]  # scores after each refinement
    samples: Path | None  # a PNG
    steps: Path | None  # translations step by step
    confusion: dict[str, Any]  # of the labels of a table, on the test split; empty where there are none

    def final(self, metric: str) -> float:
        """At the last step. The best step would favour whoever is evaluated most often."""
        return float(self.validation[metric][-1])

    def steps_to(self, accuracy: float) -> float:
        """The first evaluated step at this accuracy or above; infinite if there is none."""
        reached = np.flatnonzero(self.validation["accuracy"] >= accuracy)
        return float(self.validation["step"][reached[0]]) if len(reached) else float("inf")

    @property
    def cpu_seconds_per_step(self) -> float | None:
        return None if self.cpu_seconds is None else self.cpu_seconds / float(self.validation["step"][-1])


def collect(paths: list[Path]) -> tuple[list[Run], list[str]]:
    """Every finished run at or below the paths, and a line for each that was left out."""
    runs, left_out = [], []
    for root in paths:
        if not root.exists():
            raise RunError(f"there is no {root}")
        for directory in find_runs(root):
            try:
                if directory.finished():
                    runs.append(_load(directory))
                else:
                    left_out.append(f"{directory.path}: {_so_far(directory)}")
            except ConfigurationError as error:  # of another version: an experiment or setting that there is not here
                left_out.append(f"{directory.path}: {error}")
    if not runs:
        given = ", ".join(map(str, paths))
        raise RunError(f"no finished run in {given}; train one first, for instance: momentum reproduce copy")
    return runs, left_out


def _so_far(directory: RunDirectory) -> str:
    """How far an unfinished run has come, and what it had reached there."""
    reached = [line for line in directory.metrics() if line["kind"] == "validation"]
    if not reached:
        return "not finished"
    _, config = load_run(directory.path)
    last = reached[-1]
    scores = (f"{name} {value:.4f}" for name, value in last.items() if name not in BESIDES)
    return f"not finished, {last['step']:,} of {config.train.steps:,} steps; validation: {', '.join(scores)}"


def _load(directory: RunDirectory) -> Run:
    request, config = load_run(directory.path)
    lines = directory.metrics()
    evaluations = [line for line in lines if line["kind"] == "validation"]
    seconds = next(line.get("cpu_seconds") for line in lines if line["kind"] == "end")
    names = [name for name in evaluations[0] if name != "kind"]
    curves = {name: np.array([line.get(name) for line in evaluations], dtype=float) for name in names}
    tests = [line for line in lines if line["kind"] == "test" and line["checkpoint"] == "best"]
    throughput, translations = (
        tuple(line for line in lines if line["kind"] == kind) for kind in ("throughput", "translation")
    )
    made = (directory.path / "samples" / name for name in ("grid.png", "steps.jsonl"))
    samples, steps = (path if path.is_file() else None for path in made)
    return Run(
        request,
        config,
        directory.read("provenance.json"),
        curves,
        seconds,
        tests[-1] if tests else {},
        throughput,
        translations,
        samples,
        steps,
        next((line for line in reversed(lines) if line["kind"] == "confusion"), {}),
    )
