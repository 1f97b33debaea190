"""Run every variant of a study, here or in as many processes as asked; what is finished already is kept."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import torch
from rich.console import Console

from ..data.folder import data_root
from ..training.run_directory import RunDirectory
from .experiment import Study
from .runs import Request, make_task, run_training


def requests(study: Study, scale: str, seeds: int, settings: Sequence[str] = ()) -> Iterator[tuple[Request, bool]]:
    """Seed by seed, so that an early stop leaves whole comparisons; and whether the run waits for others."""
    for seed in range(seeds):
        for experiment, variant in study.lines:
            request = Request(experiment, variant.model, scale, seed, (*variant.settings, *settings))
            yield request, variant.waits


def run_study(
    study: Study,
    *,
    scale: str,
    seeds: int,
    out: Path,
    jobs: int,
    settings: Sequence[str] = (),
    data_dir: Path | None = None,
) -> bool:
    """Returns whether every run reached its end."""
    console = Console()
    todo = []
    for request, waits in requests(study, scale, seeds, settings):
        _ = request.config  # an impossible setting is refused before the first run starts
        run = RunDirectory(request.directory(out))
        if (run.path / "config.json").exists() and run.concluded():
            console.print(f"finished already: {run.path}", highlight=False)
        else:
            todo.append((request, run, waits))
    first = {request.experiment: (request, run) for request, run, _ in reversed(todo)}
    for request, run in first.values():  # missing data is downloaded once, or missed once
        make_task(request, request.config, run, data_root(data_dir)).prepare()
    if jobs == 1:  # in this process: starting another one takes longer than a tiny run
        with threads(1 if scale == "tiny" else None):
            return all(
                run_training(request, run.path, resume=run.last.exists(), data_dir=data_dir)
                for request, run, _ in todo
            )
    stop = threading.Event()

    def start(request: Request, run: RunDirectory) -> bool:
        if stop.is_set():
            return False
        code = subprocess.run(_command(request, run, out, data_dir), env=_environment(jobs)).returncode
        if code:
            stop.set()
        return code == 0

    def start_all(late: bool) -> bool:
        started = [pool.submit(start, request, run) for request, run, waits in todo if waits == late]
        return all(future.result() for future in started)

    with ThreadPoolExecutor(max_workers=jobs) as pool:
        return start_all(False) and start_all(True)


def _command(request: Request, run: RunDirectory, out: Path, data_dir: Path | None) -> list[str]:
    words = [sys.executable, "-m", "momentum_transformer", "train", request.experiment, "--model", request.model]
    words += ["--scale", request.scale, "--seed", str(request.seed), "--runs", str(out)]
    words += [] if data_dir is None else ["--data-dir", str(data_dir)]
    for setting in request.settings:
        words += ["--set", setting]
    return [*words, "--resume"] if run.last.exists() else words


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
