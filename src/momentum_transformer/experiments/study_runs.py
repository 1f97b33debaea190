"""The runs of a study: which are asked for, at which learning rates, and which of them are finished."""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..training.run_directory import RunDirectory
from .experiment import Study, Variant
from .runs import Request, train_words

Finished = Callable[[Request], RunDirectory | None]  # the finished run of a request
Todo = list[tuple[Request, RunDirectory, bool]]  # and whether it waits for others


def requests(
    study: Study,
    scale: str,
    seeds: int,
    settings: Sequence[str] = (),
    *,
    rates: int | None = None,
    finished: Finished = lambda request: None,
) -> Iterator[tuple[Request, bool]]:
    """Each run once, seed by seed, so that an early stop leaves whole comparisons; and whether it waits for others.

    Parts of a study may ask for the same run: it comes where it is asked for first.
    """
    seen: set[Path] = set()
    for request, waits in _requests_of_lines(study.lines, scale, seeds, settings, rates, finished):
        if (place := request.directory(Path())) not in seen:
            seen.add(place)
            yield request, waits


def _requests_of_lines(
    lines: Sequence[tuple[str, Variant]],
    scale: str,
    seeds: int,
    settings: Sequence[str],
    rates: int | None,
    finished: Finished,
) -> Iterator[tuple[Request, bool]]:
    """Where a variant has several learning rates, of which `rates` are tried, the first seed is run at each of them,
    the experiment's own first; the other seeds only where all of these are finished, at the rate that was the best.
    """
    for i in range(min(rates or sys.maxsize, max(len(variant.rates) for _, variant in lines))):
        for experiment, variant in lines:
            if i < len(variant.rates):
                yield at_rate(asked(experiment, variant, scale, settings), variant.rates[i]), variant.waits
    for seed in range(1, seeds):
        for experiment, variant in lines:
            tried = [at_rate(asked(experiment, variant, scale, settings), rate) for rate in variant.rates[:rates]]
            best = tried[0] if len(tried) == 1 else best_of(tried, finished)
            if best is not None:
                yield replace(best, seed=seed), variant.waits


def asked(experiment: str, variant: Variant, scale: str, settings: Sequence[str] = ()) -> Request:
    """The first seed of a variant, at the experiment's own learning rate."""
    return Request(experiment, variant.model, scale, 0, (*variant.settings, *settings))


def at_rate(request: Request, factor: float) -> Request:
    """The same with its learning rate multiplied, to two digits."""
    if factor == 1:
        return request
    rate = float(f"{factor * request.config.train.learning_rate:.2g}")
    return replace(request, settings=(*request.settings, f"train.learning_rate={rate}"))


def best_of(tried: Sequence[Request], finished: Finished) -> Request | None:
    """The request with the lowest loss on validation data, at its best checkpoint; None while one is not finished."""
    losses: dict[float, Request] = {}
    for request in tried:
        if (run := finished(request)) is None:
            return None
        reached = (line["loss"] for line in run.metrics() if line["kind"] == "validation")
        losses.setdefault(min(reached, default=math.inf), request)
    return losses[min(losses)]


def is_done(run: RunDirectory) -> bool:
    """Whether it was trained and scored; one that is damaged was not, and does not stop a study."""
    return run.exists() and run.surely_concluded()


def finished_in(*roots: Path) -> Finished:
    """A function that looks for a request's finished run below these folders, in their order."""

    def find(request: Request) -> RunDirectory | None:
        places = (RunDirectory(request.directory(root)) for root in roots)
        return next((run for run in places if is_done(run)), None)

    return find


@dataclass(frozen=True)
class Plan:
    """A study as it is asked for, and where its runs go."""

    study: Study
    scale: str
    seeds: int
    runs: Path
    settings: tuple[str, ...] = ()
    rates: int | None = None  # how many learning rates are tried; all of them without a number
    data_dir: Path | None = None

    def requests(self, finished: Finished) -> list[tuple[Request, bool]]:
        """The runs that can be asked for when these are finished, and whether each waits for others."""
        return [*requests(self.study, self.scale, self.seeds, self.settings, rates=self.rates, finished=finished)]


def runs_left(plan: Plan) -> tuple[Todo, list[RunDirectory]]:
    """The requests that can be run now and are not finished, and those that are finished."""
    todo: Todo = []
    done: list[RunDirectory] = []
    for request, waits in plan.requests(finished_in(plan.runs)):
        _ = request.config  # an impossible setting is refused before the first run starts
        run = RunDirectory(request.directory(plan.runs))
        if is_done(run):
            done.append(run)
        else:
            todo.append((request, run, waits))
    return todo, done


def command(request: Request, out: Path, data_dir: Path | None) -> list[str]:
    """The words of a command that runs a request below `out`, or carries it on."""
    return [sys.executable, "-m", "momentum_transformer", *train_words(request, ("--runs", str(out)), data_dir)]
