"""A study worked through in the background: one run after the other, and after any interruption from where it was."""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from rich.console import Console

from ..durable import HeldError, hold, make_folder, replace_file, write_note
from ..errors import UserError
from ..experiments.runs import Request, run_training
from ..experiments.study_runs import Plan, finished_in, is_done
from ..training.run_directory import RunDirectory, RunError
from .reproduce import threads

LOCK = "queue.lock"
KEPT = ("config.json", "provenance.json", "samples", "samples.jsonl", "metrics.jsonl")  # the last one says it is whole


def run_queue(plan: Plan, results: Path) -> bool:
    """Run everything, one run at a time, past those that fail; returns whether all reached their end.

    What a finished run is remembered by is copied to `results`.
    """
    console = Console(highlight=False, soft_wrap=True)
    find = finished_in(plan.runs, results)

    def wanted() -> list[Request]:
        return [request for request, _ in plan.requests(find)]

    for request in wanted():
        _ = request.config  # an impossible setting is refused before the first run starts
    seen: set[Request] = set()
    failed = 0
    with _alone(plan.runs) as note, threads(1):
        # finished runs may ask for further ones: repeat until there are none
        while turn := [(i, request) for i, request in enumerate(wanted(), start=1) if request not in seen]:
            for number, request in turn:
                seen.add(request)
                run, kept = RunDirectory(request.directory(plan.runs)), RunDirectory(request.directory(results))
                try:
                    if find(request) is None:
                        console.print(f"run {number} of {turn[-1][0]}: {run.path}")
                        write_note(note, str(run.path))
                        if not run_training(request, run.path, resume=True, data_dir=plan.data_dir):
                            console.print("interrupted; everything is saved, and the same command carries on")
                            return False
                    if is_done(run) and not is_done(kept):
                        copy_results(run, kept)
                except UserError as error:
                    console.print(f"failed: {run.path}: {error}")
                    failed += 1
    if failed:
        console.print(f"{failed} runs failed; the same command tries them again")
    return not failed


def copy_results(run: RunDirectory, to: RunDirectory) -> None:
    """Copy what a finished run is remembered by to the results; its weights stay where they are."""
    try:
        shutil.rmtree(to.path, ignore_errors=True)  # what an interruption has left
        for name in KEPT:
            place = run.path / name
            for file in sorted(place.rglob("*")) if place.is_dir() else [place] if place.exists() else []:
                if file.is_file():
                    _copy(file, to.path / file.relative_to(run.path))
    except OSError as error:
        raise RunError(f"{run.path} is finished, but cannot be copied to {to.path}: {error}") from None


def _copy(file: Path, to: Path) -> None:
    make_folder(to.parent)
    replace_file(to, lambda temporary: shutil.copy(file, temporary))


def running(runs: Path) -> Path | None:
    """The run that a queue is working on, or None where no queue is at work."""
    try:
        with (runs / LOCK).open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return Path(file.read())
    except FileNotFoundError:
        pass
    return None


@contextmanager
def _alone(runs: Path) -> Iterator[IO[str]]:
    """One queue at a time in a folder."""
    make_folder(runs)
    try:
        with hold(runs / LOCK, "") as note:
            yield note
    except HeldError:
        raise RunError(f"a queue is at work in {runs} already; momentum list --queue shows it") from None
