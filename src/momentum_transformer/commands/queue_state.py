"""`momentum list --queue`: what is done, running and left, with hours that are measured or called estimates."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column, Table

from ..experiments.configuration import ConfigurationError
from ..experiments.experiment import Study
from ..experiments.runs import Request
from ..experiments.study_runs import finished_in, is_done, requests
from ..training.run_directory import RunDirectory
from .queue import running

State = Literal["done", "running", "stopped", "left"]


@dataclass(frozen=True)
class Progress:
    """How far one run of a queue has come."""

    request: Request
    state: State
    share: float  # of its steps
    seconds: float  # spent in training steps

    @property
    def whole(self) -> float | None:
        """Seconds from the first step to the last, as far as this run itself can tell."""
        return self.seconds / self.share if self.share else None


def queue_state(study: Study, *, scale: str, seeds: int, runs: Path, results: Path) -> list[Progress]:
    """Every run of the queue, in its order."""
    now = running(runs)
    wanted = requests(study, scale, seeds, finished=finished_in(runs, results))
    return [_progress(request, runs, results, now) for request, _ in wanted]


def _progress(request: Request, runs: Path, results: Path, now: Path | None) -> Progress:
    run, kept = RunDirectory(request.directory(runs)), RunDirectory(request.directory(results))
    done = next((place for place in (run, kept) if is_done(place)), None)
    shown = done or run
    lines = [line for line in ([] if shown.damage() else shown.metrics()) if line["kind"] in ("train", "end")]
    step = max((line["step"] for line in lines), default=0)
    seconds = max((line.get("seconds") or 0.0 for line in lines), default=0.0)
    share = 1.0 if done else min(1.0, step / request.config.train.steps)
    is_now = now is not None and now.resolve() == run.path.resolve()
    state: State = "done" if done else "running" if is_now else "stopped" if run.last.exists() else "left"
    return Progress(request, state, 0.0 if state == "left" else share, 0.0 if state == "left" else seconds)


def seconds_left(progress: Progress, everything: Sequence[Progress]) -> float | None:
    """An estimate: by its own pace, else by the same model's elsewhere in the queue, else by the experiment's mean."""
    asked = progress.request
    alike = [other for other in everything if other.request.experiment == asked.experiment and other.whole is not None]
    own = [other for other in alike if other.request.model == asked.model]
    for base in ([progress] if progress.whole is not None else [], own, alike):
        if base:
            whole = sum(other.whole or 0.0 for other in base) / len(base)
            return (1 - progress.share) * whole
    return None


def show_queue(study: Study, *, scale: str, seeds: int, runs: Path, results: Path, console: Console) -> None:
    if seeds < 1:
        raise ConfigurationError(f"--seeds must be 1 or more, not {seeds}")
    everything = queue_state(study, scale=scale, seeds=seeds, runs=runs, results=results)
    numbers = (Column(name, justify="right") for name in ("seed", "state", "hours", "left"))
    table = Table(
        Column("experiment", no_wrap=True),
        Column("model", overflow="fold"),
        *numbers,
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    for progress in everything:
        request, left = progress.request, seconds_left(progress, everything)
        started = progress.state in ("running", "stopped")
        table.add_row(
            request.experiment,
            "\n".join((request.model, *request.settings)),
            str(request.seed),
            f"{progress.state}, {100 * progress.share:.0f} %" if started else progress.state,
            f"{progress.seconds / 3600:.2f}" if progress.seconds else "–",
            "–" if progress.state == "done" else "?" if left is None else f"~{left / 3600:.2f}",
        )
    console.print(table)
    console.print(_summary(everything))


def _summary(everything: Sequence[Progress]) -> str:
    open_runs = [progress for progress in everything if progress.state != "done"]
    estimates = [seconds_left(progress, everything) for progress in open_runs]
    unknown = estimates.count(None)
    known = _hours(seconds for seconds in estimates if seconds is not None)
    spent = _hours(progress.seconds for progress in everything)
    said = f"{len(everything) - len(open_runs)} of {len(everything)} runs are done; {spent} in training steps so far."
    if not open_runs:
        return said
    said += f" About {known} left, by the pace of runs alike"
    return said + (f", and {unknown} runs of which nothing is known yet." if unknown else ".")


def _hours(seconds: Iterable[float]) -> str:
    return f"{sum(seconds) / 3600:.1f} hours"
