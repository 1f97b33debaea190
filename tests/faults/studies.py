"""Faults around training: whole processes, torchrun, studies, queues, reports, caches, distillation."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from momentum_transformer.training.run_directory import RunDirectory
from tests.experiments.toy_language import write_pair

from .evidence import evidence, files, lost
from .row import Row
from .server import LONGEST, Fault, start, strike, wait, warm_up
from .training import Case, last_line

SHORT = ("--scale", "tiny", "--set", "train.steps=4")
PROGRAM = [sys.executable, "-m", "momentum_transformer"]


def outside() -> dict[str, str]:
    """The environment of a process that shares the machine."""
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def processes(case: Case, count: int, dice: random.Random) -> Row:
    """Whole processes, killed from their first instruction on, imports included."""
    row = Row("train as a process of its own, killed at random instants")
    run, seconds = case.fresh(), LONGEST
    while row.faults < count:
        with case.log.open("w") as log:
            begun = time.monotonic()
            child = subprocess.Popen([*PROGRAM, *case.words, "--out", str(run)], stdout=log, stderr=log, env=outside())
            first = seconds == LONGEST
            try:
                child.wait(LONGEST if first else dice.uniform(0, seconds))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
                row.faults += 1
                row.lost(lost(run, -1, case.reference))
                continue
        seconds = time.monotonic() - begun
        if child.returncode or evidence(run) != case.reference:
            row.stuck(f"code {child.returncode}: {last_line(case.log)}")
        run = case.fresh()
    case.finish(run, row, "after kills")
    return row


def torchrun(count: int, scratch: Path, dice: random.Random) -> Row:
    """`torchrun --max-restarts` with two ranks: it starts them again by itself when one is killed."""
    row = Row("torchrun --max-restarts, either of two ranks killed")
    words = ["train", "copy", "--scale", "tiny", "--set", "train.steps=30", "--set", "train.save_every=3", "--resume"]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["--max-restarts", "1000", "-m", "momentum_transformer", *words]

    def attempt(run: Path, seconds: float) -> dict[str, Any] | None:
        """Run to the end; kill a rank now and then, if `seconds` is not 0."""
        with (scratch / "torchrun.txt").open("w") as log:
            agent = subprocess.Popen([*command, "--out", str(run)], stdout=log, stderr=log, env=outside())
            while seconds and row.faults < count and agent.poll() is None:
                time.sleep(dice.uniform(0, seconds))
                workers = children(agent.pid)
                if workers and not RunDirectory(run).concluded():
                    os.kill(dice.choice(workers), signal.SIGKILL)
                    row.faults += 1
            try:
                code = agent.wait(LONGEST)
            except subprocess.TimeoutExpired:
                for process in (agent.pid, *children(agent.pid)):
                    os.kill(process, signal.SIGKILL)
                code = None
        if code != 0:
            row.stuck(f"code {code}: {last_line(scratch / 'torchrun.txt')}")
            return None
        return evidence(run)

    begun = time.monotonic()
    reference = attempt(scratch / "torchrun-whole", 0)
    seconds = time.monotonic() - begun
    while row.faults < count:
        run = scratch / "torchrun-killed"
        shutil.rmtree(run, ignore_errors=True)
        found = attempt(run, seconds)
        row.different("torchrun" if found is not None and found != reference else "")
    return row


def children(parent: int) -> list[int]:
    """The processes that a process has started."""
    try:
        return [int(word) for word in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
    except OSError:
        return []


@dataclass
class Command:
    """A command that leaves folders behind, and how they look when nothing has happened to it."""

    name: str
    words: list[str]
    folders: tuple[Path, ...]  # removed before each trial
    look: Callable[[], Any]
    scratch: Path
    environment: dict[str, str] = field(default_factory=dict)
    reference: Any = None
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.log = self.scratch / "command.txt"
        os.environ |= self.environment
        warm_up(self.words)
        self.clear()
        begun = time.monotonic()
        code = wait(self.start())
        assert code == 0, self.log.read_text()
        self.seconds, self.reference = time.monotonic() - begun, self.look()

    def start(self, fault: Fault | None = None) -> int:
        return start(self.words, out=self.log, fault=fault, environment={"PATIENCE": "10", **self.environment})

    def clear(self) -> None:
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)

    def finish(self, row: Row, what: str) -> None:
        code = wait(self.start())
        if code != 0:
            row.stuck(f"{what}: code {code}: {last_line(self.log)}")
        elif self.look() != self.reference:
            row.different(what)


def commands_killed(command: Command, count: int, dice: random.Random) -> Row:
    """SIGKILL at random instants; one to three times before it may end."""
    row = Row(f"{command.name}, killed at random instants")
    while row.faults < count:
        command.clear()
        for _ in range(dice.randint(1, 3)):
            code = strike(command.start(), dice.uniform(0, command.seconds))
            row.faults += code == -signal.SIGKILL
            if code not in (0, -signal.SIGKILL):
                row.stuck(f"code {code}: {last_line(command.log)}")
        command.finish(row, "after kills")
    return row


def commands_crashed(command: Command, folder: Path, every: int) -> Row:
    """A crash before each file operation in turn, from the start, and where everything was there already."""
    row = Row(f"{command.name}, crash before every file operation")
    operations = command.scratch / "operations.txt"
    for again in (False, True):
        for at in range(0, 100_000, every):
            if not again:
                command.clear()
            elif command.look() != command.reference:
                row.different(f"before operation {at}")
            code = wait(command.start(Fault(folder, "before", at, operations)))
            if code == 0:
                break  # there are no more
            row.faults += 1
            if code != -signal.SIGKILL:
                row.stuck(f"operation {at}: code {code}: {last_line(command.log)}")
            if again:
                kept, whole = files(folder), command.reference
                gone = isinstance(whole, dict) and any(kept.get(name) != digest for name, digest in whole.items())
                row.lost(f"operation {at}: a file is gone" if gone else "")
            command.finish(row, f"operation {at}")
    return row


def study_evidence(runs: Path, results: Path | None = None) -> Callable[[], Any]:
    """Every run of a study, and what a queue has copied of it, and whether that is what the run holds."""

    def look() -> Any:
        found = {str(path.parent.relative_to(runs)): evidence(path.parent) for path in runs.rglob("config.json")}
        copies, own = {} if results is None else files(results), files(runs)
        return found, {name: digest == own.get(name) for name, digest in copies.items()}

    return look


def reproduce_command(scratch: Path) -> Command:
    runs, report = scratch / "study", scratch / "study-report"
    words = ["reproduce", "copy", *SHORT, "--runs", str(runs), "--report", str(report)]
    return Command("reproduce", words, (runs, report), study_evidence(runs), scratch)


def queue_command(scratch: Path) -> Command:
    runs, results = scratch / "queue", scratch / "queue-results"
    words = ["reproduce", "copy", *SHORT, "--queue", "--seeds", "1", "--runs", str(runs), "--results", str(results)]
    return Command("reproduce --queue", words, (runs, results), study_evidence(runs, results), scratch)


def report_command(scratch: Path, runs: Path) -> Command:
    out = scratch / "report"
    if not runs.exists():
        reproduce_command(scratch)
    return Command("report", ["report", str(runs), "--out", str(out)], (out,), lambda: files(out), scratch)


def translation_words(scratch: Path, model: str, *more: str) -> tuple[list[str], Path]:
    source, target = scratch / "toy0.en", scratch / "toy0.de"
    if not source.exists():
        write_pair(scratch, 200)
    settings = (f"data.source={source}", f"data.target={target}", "data.pieces=60", "train.steps=4", *more)
    run = scratch / f"translation-{model}"
    words = ["train", "translation", "--model", model, "--scale", "tiny", "--resume", "--out", str(run)]
    return [*words, *(word for setting in settings for word in ("--set", setting))], run


def cache_command(scratch: Path) -> Command:
    """Vocabulary and encoded text are made, and kept in the cache."""
    words, run = translation_words(scratch, "autoregressive")
    cache = scratch / "cache"
    return Command(
        "cache building", words, (run, cache), lambda: (evidence(run), files(cache)), scratch,
        {"MOMENTUM_CACHE": str(cache)},
    )  # fmt: skip


def distillation_command(scratch: Path) -> Command:
    """A student of the run that `cache_command` leaves: the teacher's translations are made, and kept in the cache."""
    teacher = scratch / "translation-autoregressive"
    if not teacher.exists():
        cache_command(scratch)
    words, run = translation_words(scratch, "linear", f"data.teacher={teacher}")
    cache = scratch / "student-cache"
    return Command(
        "distillation", words, (run, cache), lambda: (evidence(run), files(cache)), scratch,
        {"MOMENTUM_CACHE": str(cache)},
    )  # fmt: skip


def jobs_killed(command: Command, count: int, dice: random.Random) -> Row:
    """`reproduce --jobs 2`: its parent is killed, its children must follow, and the same command carries on."""
    row = Row("reproduce --jobs 2, parent killed at random instants")
    runs = command.folders[0]
    words = [*command.words, "--jobs", "2"]

    def begin() -> int:
        return start(words, out=command.log, environment={"OMP_NUM_THREADS": "1", "PATIENCE": "10"})

    def orphans() -> list[int]:
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if str(runs).encode() in path.read_bytes() and int(path.parent.name) != os.getpid():
                    found.append(int(path.parent.name))
            except OSError:  # it has just ended
                pass
        return found

    command.clear()
    seconds = 8.0
    while row.faults < count:
        code = strike(begin(), dice.uniform(0, seconds))
        if code == -signal.SIGKILL:
            row.faults += 1
            end = time.monotonic() + LONGEST
            while orphans() and time.monotonic() < end:
                time.sleep(0.05)
            for orphan in orphans():
                row.stuck("a child outlived its parent")
                os.kill(orphan, signal.SIGKILL)
        elif code == 0:
            row.different("" if command.look() == command.reference else "a study")
            command.clear()
        else:
            row.stuck(f"code {code}: {last_line(command.log)}")
    code = wait(begin(), 4 * LONGEST)
    if code != 0:
        row.stuck(f"code {code}: {last_line(command.log)}")
    elif command.look() != command.reference:
        row.different("a study")
    return row
