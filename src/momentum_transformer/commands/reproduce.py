"""Run every variant of a study, here or in as many processes as asked; what is finished already is kept."""

import os
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import torch
from rich.console import Console

from ..data.folder import data_root
from ..errors import UserError
from ..experiments.runs import INTERRUPTED, Request, make_task, run_training
from ..experiments.study_runs import Plan, Todo, command, runs_left
from ..training.interruption import lifeline
from ..training.run_directory import RunDirectory
from .watching import Watch


def run_study(plan: Plan, jobs: int = 1) -> bool:
    """Run a study; returns whether every run reached its end. One that fails is named, and the others go on."""
    console = Console(highlight=False, soft_wrap=True, markup=False)
    known: set[Path] = set()
    whole = True
    while True:  # finished runs may ask for further ones
        todo, done = runs_left(plan)
        for run in done:
            if run.path not in known:
                console.print(f"finished already: {run.path}")
        todo = [line for line in todo if line[1].path not in known]
        known |= {run.path for run in done} | {run.path for _, run, _ in todo}
        if not todo:
            return whole
        first = {request.experiment: (request, run) for request, run, _ in reversed(todo)}
        for request, run in first.values():  # missing data is downloaded, or reported, once and not by every run
            make_task(request, request.config, run, data_root(plan.data_dir)).prepare()
        ends = _run_all(todo, plan, jobs)
        known |= set(ends)
        for path, failure in ends.items():
            if failure:
                console.print(f"failed: {path}: {failure}")
        if None in ends.values():  # interrupted
            return False
        whole = whole and not any(ends.values())


def _run_all(todo: Todo, plan: Plan, jobs: int) -> dict[Path, str | None]:
    """How each run ended: an empty string, or its last line, or None where it was interrupted, and all with it."""
    if jobs == 1:  # in this process: starting another one takes longer than a tiny run
        ends: dict[Path, str | None] = {}
        with threads(1 if plan.scale == "tiny" else None):
            for request, run, _ in todo:
                try:
                    ended = run_training(request, run.path, resume=True, data_dir=plan.data_dir)
                    ends[run.path] = "" if ended else None
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
            words, stdout = command(request, plan.runs, plan.data_dir), subprocess.DEVNULL if silent else None
            code = subprocess.run(words, env=environment, pass_fds=[pipe], stdout=stdout).returncode
        if code == INTERRUPTED:
            stop.set()
            return None
        return (run.failure() or f"it ended with code {code}") if code else ""

    def start_all(late: bool) -> dict[Path, str | None]:
        started = {run.path: pool.submit(start, request, run) for request, run, waits in todo if waits == late}
        return {path: future.result() for path, future in started.items()}

    with lifeline() as (pipe, more, cut), Watch(Console()) as watch, ThreadPoolExecutor(max_workers=jobs) as pool:
        environment = _environment(jobs) | more
        try:
            return start_all(False) | start_all(True)
        except KeyboardInterrupt:  # each run finishes its step, and saves
            stop.set()
            cut()  # a terminal sends the signal to the runs, too, and others to this process alone
            return {run.path: None for _, run, _ in todo}


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Compute with `count` threads inside: on a busy machine, two that wait for each other slow a tiny model down."""
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
