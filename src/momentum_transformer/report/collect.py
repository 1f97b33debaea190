"""What the report knows of a run: what was asked, and the curves that came of it."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from ..bounded import parse_json, read_tail
from ..errors import UserError, one_line
from ..experiments.runs import Request, load_run
from ..training.records import is_number
from ..training.run_directory import RunDirectory, RunError, find_runs

TAIL_BYTES = 65_536  # of samples that are read
NEEDED = {
    "test": ("checkpoint",),
    "end": (),
    "translation": ("refinements", "lengths", "bleu", "chrf", "tokenized_bleu", "bleu_signature"),
    "throughput": ("batch_tokens", "source", "target"),
}
SPEED_OF_PICTURES = ("method", "batch", "images_per_second", "bytes_per_image")
NOTES = ("kind", "checkpoint", "lengths", "model", "method", "bleu_signature", "chrf_signature")
UNREAD = ("extrapolated_from_places",)
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
    written: Path | None  # texts as training went
    confusion: dict[str, Any]  # of the labels of a table, on the test split; empty where there are none

    def final(self, metric: str) -> float:
        """The score at the last step. The best step would favour models that are evaluated more often."""
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
            raise RunError(f"there is no folder {root}; name one with runs in it")
        for directory in find_runs(root):
            try:
                lines = directory.metrics()
                for line in lines:
                    _check(line, directory)
                if any(line["kind"] == "end" for line in lines):
                    runs.append(_load(directory, lines))
                else:
                    left_out.append(f"{directory.path}: {_so_far(directory, lines)}")
            except UserError as error:  # damaged, or of another version: a setting that there is not here
                reason = one_line(error)
                left_out.append(reason if reason.startswith(str(directory.path)) else f"{directory.path}: {reason}")
    if not runs:
        given = ", ".join(map(str, paths))
        reason = f" ({left_out[0]})" if left_out else ""
        raise RunError(f"no finished run in {given}{reason}; train one first, for instance: momentum reproduce copy")
    return runs, left_out


def _check_weights(path: Path) -> None:
    """Weights that are there must be whole: the header is read, and that the file is as long as it says."""
    try:
        if path.is_file():
            with safe_open(path, framework="np"):
                pass
    except (SafetensorError, OSError) as error:
        raise RunError(f"{path} is damaged ({error})") from None


def _so_far(directory: RunDirectory, lines: list[dict[str, Any]]) -> str:
    """How far an unfinished run has come, and what it had reached there."""
    _, config = load_run(directory.path)
    reached = [line for line in lines if line["kind"] == "validation"]
    if not reached:
        return "not finished"
    last, step = reached[-1], max(line["step"] for line in lines if is_number(line.get("step")))
    known = {name: value for name, value in last.items() if name not in BESIDES and is_number(value)}
    scores = ", ".join(f"{name} {value:.4f}" for name, value in known.items())
    return f"not finished, {step:,} of {config.train.steps:,} steps; validation at step {last['step']:,}: {scores}"


def last_text(run: Run) -> str:
    """What a text model wrote at the last evaluation; empty where nothing can be read."""
    if run.written is None:
        return ""
    try:
        return str(parse_json(read_tail(run.written, TAIL_BYTES).splitlines()[-1])["text"])
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return ""


def _check(line: dict[str, Any], directory: RunDirectory) -> None:
    """Whether a line has what its kind has, and whether all but its notes are numbers."""
    kind = line["kind"]
    needed = SPEED_OF_PICTURES if kind == "throughput" and "method" in line else NEEDED.get(kind, ())
    if missing := [name for name in needed if name not in line]:
        raise RunError(f"{directory.path}/metrics.jsonl has a {kind} without {', '.join(missing)}")
    for name, value in line.items():
        fits = isinstance(value, str) if name in NOTES else value is None or is_number(value)
        if kind in NEEDED and name not in UNREAD and not fits:
            raise RunError(f"{directory.path}/metrics.jsonl has a {kind} with a strange {name}")


def _load(directory: RunDirectory, lines: list[dict[str, Any]]) -> Run:
    request, config = load_run(directory.path)
    _check_weights(directory.best)
    evaluations = [line for line in lines if line["kind"] == "validation"]
    seconds = next(line.get("cpu_seconds") for line in lines if line["kind"] == "end")
    if not evaluations or not evaluations[-1]["step"]:
        raise RunError(f"{directory.path}/metrics.jsonl has no evaluation after step 0")
    if not any(math.isfinite(line["loss"]) for line in evaluations):
        raise RunError(f"{directory.path}/metrics.jsonl has no evaluation whose loss is a finite number")
    names = [name for name in evaluations[0] if name != "kind"]
    curves = {name: np.array([line.get(name) for line in evaluations], dtype=float) for name in names}
    tests = [line for line in lines if line["kind"] == "test" and line.get("checkpoint") == "best"]
    throughput, translations = (
        tuple(line for line in lines if line["kind"] == kind) for kind in ("throughput", "translation")
    )
    made = (directory.path / name for name in ("samples/grid.png", "samples/steps.jsonl", "samples.jsonl"))
    samples, steps, written = (path if path.is_file() else None for path in made)
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
        written,
        next((line for line in reversed(lines) if line["kind"] == "confusion"), {}),
    )
