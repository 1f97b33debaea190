"""Run every variant of a study, here or in as many processes as asked; what is finished already is kept."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console

from ..data.folder import data_root
from ..errors import UserError
from ..training.interruption import lifeline
from ..training.run_directory import RunDirectory
from .experiment import Study, Variant
from .runs import INTERRUPTED, Request, make_task, run_training, train_words
from .watching import Watch

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
    """Seed by seed, so that an early stop leaves whole comparisons; and whether the run waits for others.

    Where a variant has several learning rates, of which `rates` are tried, the first seed is run at each of them, the
    experiment's own first; the other seeds only where all of these are finished, at the rate that was the best.
    """
    lines = study.lines
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
        losses.setdefault(min(line["loss"] for line in run.metrics() if line["kind"] == "validation"), request)
    return losses[min(losses)]


def is_done(run: RunDirectory) -> bool:
    """Whether it was trained and scored."""
    return (run.path / "config.json").exists() and run.concluded()


def finished_in(*roots: Path) -> Finished:
    """Looks for a request's finished run below these folders, in their order."""

    def find(request: Request) -> RunDirectory | None:
        places = (RunDirectory(request.directory(root)) for root in roots)
        return next((run for run in places if is_done(run)), None)

    return find


def runs_left(
    study: Study, scale: str, seeds: int, out: Path, settings: Sequence[str] = (), *, rates: int | None = None
) -> tuple[Todo, list[RunDirectory]]:
    """What can be run now and is not finished in `out`, and what is."""
    todo: Todo = []
    done: list[RunDirectory] = []
    for request, waits in requests(study, scale, seeds, settings, rates=rates, finished=finished_in(out)):
        _ = request.config  # an impossible setting is refused before the first run starts
        run = RunDirectory(request.directory(out))
        if is_done(run):
            done.append(run)
        else:
            todo.append((request, run, waits))
    return todo, done


def run_study(
    study: Study,
    *,
    scale: str,
    seeds: int,
    out: Path,
    jobs: int,
    settings: Sequence[str] = (),
    rates: int | None = None,
    data_dir: Path | None = None,
) -> bool:
    """Returns whether every run reached its end; one that fails is named, and the others go on."""
    console = Console(highlight=False, soft_wrap=True, markup=False)
    known: set[Path] = set()
    whole = True
    while True:  # what is asked for next may depend on what has come out
        todo, done = runs_left(study, scale, seeds, out, settings, rates=rates)
        for run in done:
            if run.path not in known:
                console.print(f"finished already: {run.path}")
        todo = [line for line in todo if line[1].path not in known]
        known |= {run.path for run in done} | {run.path for _, run, _ in todo}
        if not todo:
            return whole
        first = {request.experiment: (request, run) for request, run, _ in reversed(todo)}
        for request, run in first.values():  # missing data is downloaded once, or missed once
            make_task(request, request.config, run, data_root(data_dir)).prepare()
        ends = _run_all(todo, scale=scale, out=out, jobs=jobs, data_dir=data_dir)
        known |= set(ends)
        for path, failure in ends.items():
            if failure:
                console.print(f"failed: {path}: {failure}")
        if None in ends.values():  # interrupted
            return False
        whole = whole and not any(ends.values())


def _run_all(todo: Todo, *, scale: str, out: Path, jobs: int, data_dir: Path | None) -> dict[Path, str | None]:
    """How each run ended: an empty string, or its last line, or None where it was interrupted, and all with it."""
    if jobs == 1:  # in this process: starting another one takes longer than a tiny run
        ends: dict[Path, str | None] = {}
        with threads(1 if scale == "tiny" else None):
            for request, run, _ in todo:
                try:
                    ends[run.path] = "" if run_training(request, run.path, resume=True, data_dir=data_dir) else None
                except UserError as error:
                    ends[run.path] = str(error)
                if ends[run.path] is None:
                    break
        return ends
    stop = threading.Event()

    def start(request: Request, run: RunDirectory) -> str | None:
        if stop.is_set():
            return None
        with watch.running(request, run.path) as silent:
            words, stdout = command(request, out, data_dir), subprocess.DEVNULL if silent else None
            code = subprocess.run(words, env=environment, pass_fds=[pipe], stdout=stdout).returncode
        if code == INTERRUPTED:
            stop.set()
            return None
        return (run.failure() or f"it ended with code {code}") if code else ""

    def start_all(late: bool) -> dict[Path, str | None]:
        started = {run.path: pool.submit(start, request, run) for request, run, waits in todo if waits == late}
        return {path: future.result() for path, future in started.items()}

    with lifeline() as (pipe, more), Watch(Console()) as watch, ThreadPoolExecutor(max_workers=jobs) as pool:
        environment = _environment(jobs) | more
        try:
            return start_all(False) | start_all(True)
        except KeyboardInterrupt:  # which the runs have heard, too: they end with their step, and save
            stop.set()
            return {run.path: None for _, run, _ in todo}


def command(request: Request, out: Path, data_dir: Path | None) -> list[str]:
    """What runs a request below `out` in a process of its own, or carries it on."""
    return [sys.executable, "-m", "momentum_transformer", *train_words(request, ("--runs", str(out)), data_dir)]


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """So many threads for a while: two that wait for each other make a tiny model slow on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _environment(jobs: int) -> dict[str, str]:
    """Share the cores between the processes."""
    threads = max(1, (os.cpu_count() or 1) // jobs)
    return {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads))}
