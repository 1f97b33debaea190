"""Faults in one training run: kills, crashes at file operations, power failures, full disks, signals, two owners."""

import os
import pty
import random
import shutil
import signal
import time
from itertools import accumulate
from pathlib import Path
from typing import Any

from .evidence import evidence, files, lose_power, lost, reached
from .row import Row
from .server import Fault, free_port, start, strike, wait, warm_up

OFTEN = ("train.save_every=2", "train.evaluate_every=3", "train.log_every=4")  # so that saves fall between lines
GRID = 1999  # bytes between two sizes of a disk
# with dropout; with random numbers in evaluation; with a test split; with a test split and samples
CASES = (
    ("copy", "adaptive-momentum", ("train.steps=6", "model.dropout=0.1", *OFTEN)),
    ("copy", "reformer", ("train.steps=6", *OFTEN)),
    ("recall", "momentum", ("train.steps=6", *OFTEN)),
    ("digits", "linear", ("train.steps=6", *OFTEN)),
)


class Case:
    """A run that never stopped, to compare with."""

    def __init__(self, number: int, scratch: Path) -> None:
        experiment, model, settings = CASES[number]
        self.scratch, self.name = scratch, f"{experiment}-{model}"
        self.words = ["train", experiment, "--model", model, "--scale", "tiny", "--resume"]
        self.words += [word for setting in settings for word in ("--set", setting)]
        self.log = scratch / "output.txt"
        warm_up([*self.words, "--out", str(scratch / f"{self.name}-warm")])
        begun = time.monotonic()
        self.reference = self._run_whole(scratch / f"{self.name}-whole")
        self.seconds = time.monotonic() - begun

    def _run_whole(self, run: Path) -> dict[str, Any]:
        code = wait(self.start(run))
        assert code == 0, self.log.read_text()
        return evidence(run)

    def start(self, run: Path, **options: Any) -> int:
        return start([*self.words, "--out", str(run)], out=self.log, **options)

    def fresh(self) -> Path:
        """A run directory that is not there yet."""
        run = self.scratch / "run"
        shutil.rmtree(run, ignore_errors=True)
        return run

    def finish(self, run: Path, row: Row, what: str) -> None:
        """The same command once more, without a fault: it must end, and nothing may be different."""
        begun = time.monotonic()
        code = wait(self.start(run))
        self.seconds = 0.8 * self.seconds + 0.2 * (time.monotonic() - begun)
        if code != 0:
            row.stuck(f"{self.name}, {what}: code {code}: {last_line(self.log)}")
        elif (found := evidence(run)) != self.reference:
            parts = [name for name in found if found[name] != self.reference[name]]
            row.different(f"{self.name}, {what}: {', '.join(parts)} {found['left over']}")


def last_line(log: Path) -> str:
    return (log.read_text(errors="replace").strip().splitlines() or ["nothing was said"])[-1]


def said_one_line(log: Path) -> bool:
    """Whether the user got one clear line: no traceback."""
    text = log.read_text(errors="replace")
    return "Traceback" not in text and sum(line.startswith("momentum: ") for line in text.splitlines()) == 1


def kills(cases: list[Case], count: int, dice: random.Random) -> Row:
    """SIGKILL at random instants, from the first on; one to six times a run, with TensorBoard beside it."""
    row = Row("train, killed at random instants")
    while row.faults < count:
        case = dice.choice(cases)
        run, step = case.fresh(), -1
        for _ in range(dice.randint(1, 6)):
            code = strike(case.start(run, board=True), dice.uniform(0, 1.1 * case.seconds))
            if code != -signal.SIGKILL:
                if code != 0:
                    row.stuck(f"{case.name}: code {code}: {last_line(case.log)}")
                break
            row.faults += 1
            row.lost(lost(run, step, case.reference))
            step = max(step, reached(run))
        case.finish(run, row, "after kills")
    return row


def operations(case: Case, run: Path) -> list[int]:
    """The operations on files of a run, each as the bytes that it writes."""
    log = case.scratch / "operations.txt"
    wait(case.start(run, fault=Fault(run, "count", log=log)))
    return [int(line.rsplit("\t", 1)[1]) for line in log.read_text().splitlines()]


def half_way(case: Case) -> Path:
    """A run that was killed in the middle, to carry on from."""
    run = case.scratch / f"{case.name}-half"
    if not run.exists():
        count = len(operations(case, case.fresh()))
        wait(case.start(run, fault=Fault(run, "before", 6 * count // 10)))
    return run


def crashes(cases: list[Case], every: int, *, mode: str, power: bool = False) -> Row:
    """The process dies before or after each file operation in turn, from the start and while it carries on."""
    names = {"before": "before", "after": "in or after"}
    row = Row(f"train, {'power failure' if power else 'crash'} {names[mode]} every file operation")
    log = cases[0].scratch / "operations.txt"
    for case in cases:
        for half in (False, True):
            where = "carrying on" if half else "from the start"
            sizes = operations(case, _beginning(case, half=half))
            # of a few, those in the middle of a write: after another operation is before the next one
            places = [at for at, size in enumerate(sizes) if size or mode == "before" or every == 1]
            for at in places[::every]:
                run = _beginning(case, half=half)
                step = reached(run)
                code = wait(case.start(run, fault=Fault(run, mode, at, log)))
                if code != -signal.SIGKILL:
                    row.stuck(f"{case.name}, {where}, operation {at}: code {code}: {last_line(case.log)}")
                    continue
                row.faults += 1
                if power:
                    lose_power(log)
                row.lost(lost(run, step, case.reference))
                case.finish(run, row, f"{where}, operation {at}")
    return row


def _beginning(case: Case, *, half: bool) -> Path:
    middle = half_way(case) if half else None
    run = case.fresh()
    return shutil.copytree(middle, run) if middle else run


def full_disk(cases: list[Case], every: int) -> Row:
    """No room left after so many bytes; one clear line; then there is room again."""
    row = Row(f"train, disk full in every write and at every {GRID:,}th byte")
    for case in cases:
        written = [size for size in operations(case, case.fresh()) if size]
        ends = list(accumulate(written))
        inside = {end - size // 2 for end, size in zip(ends, written, strict=True)}
        sizes = {0, *(end - 1 for end in ends), *inside, *range(0, ends[-1], GRID)}
        for size in sorted(sizes)[::every]:
            run = case.fresh()
            code = wait(case.start(run, fault=Fault(run, "full", size)))
            row.faults += 1
            if code != 2 or not said_one_line(case.log):
                row.stuck(f"{case.name}, {size} bytes: code {code}: {last_line(case.log)}")
            row.lost(lost(run, -1, case.reference))
            case.finish(run, row, f"disk full after {size} bytes")
    return row


def read_only(cases: list[Case]) -> Row:
    """Nothing can be written: one clear line, nothing changed; a finished run is still finished."""
    row = Row("train, directory read-only")
    for case in cases:
        whole = case.scratch / f"{case.name}-whole"
        for run, wanted in ((case.fresh(), 2), (half_way(case), 2), (whole, 0)):
            before = files(run)
            code = wait(case.start(run, fault=Fault(run, "read-only")))
            row.faults += 1
            if code != wanted or not (wanted == 0 or said_one_line(case.log)):
                row.stuck(f"{case.name}: code {code}: {last_line(case.log)}")
            row.lost("" if files(run) == before else f"{case.name}: files changed")
        case.finish(_beginning(case, half=True), row, "read-only")
    return row


def signals(cases: list[Case], count: int, dice: random.Random) -> Row:
    """Each signal that asks to end, at random instants; in the loop it saves, outside it ends the process."""
    row = Row("train, SIGHUP, SIGQUIT, SIGTERM, SIGINT at random instants")
    numbers = (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGINT)
    while row.faults < count:
        case, number = dice.choice(cases), numbers[row.faults % 4]
        run = case.fresh()
        code = strike(case.start(run), dice.uniform(0, case.seconds), number)
        if code == 0:
            continue
        row.faults += 1
        if code not in (130, -number):
            row.stuck(f"{case.name}, {number.name}: code {code}: {last_line(case.log)}")
        if code == 130 and number != signal.SIGINT and reached(run) < 0:
            row.lost(f"{case.name}, {number.name}: nothing was saved")
        case.finish(run, row, f"after {number.name}")
    return row


def terminals(case: Case, count: int, dice: random.Random) -> Row:
    """The terminal is closed: its bar has nowhere to go, and the run is saved."""
    row = Row("train, terminal closed at random instants")
    while row.faults < count:
        run = case.fresh()
        master, slave = pty.openpty()
        child = case.start(run, terminal=slave)
        os.close(slave)
        time.sleep(dice.uniform(0, case.seconds))
        os.close(master)
        if wait(child) is None:
            row.stuck("it did not end")
        row.faults += 1
        row.lost(lost(run, -1, case.reference))
        case.finish(run, row, "after a closed terminal")
    return row


def two_owners(cases: list[Case], count: int, dice: random.Random) -> Row:
    """Two processes, one directory, some time apart: one trains, the other gets one line or finds it finished."""
    row = Row("train, two owners of a directory")
    for _ in range(count):
        case = dice.choice(cases)
        run, other = case.fresh(), case.scratch / "other.txt"
        first = case.start(run)
        time.sleep(dice.choice((0, dice.uniform(0, case.seconds))))
        second = start([*case.words, "--out", str(run)], out=other)
        for child, log in ((first, case.log), (second, other)):
            code = wait(child)
            refused = code == 2 and said_one_line(log) and "is in use by process" in last_line(log)
            if code != 0 and not refused:
                row.stuck(f"{case.name}: code {code}: {last_line(log)}")
        if all("  step 0/" in log.read_text() for log in (case.log, other)):
            row.different(f"{case.name}: both have trained")
        row.faults += 1
        case.finish(run, row, "two owners")
    return row


def ranks(count: int, scratch: Path, dice: random.Random) -> Row:
    """Two processes train together; one of them is killed, the other ends, both are started again."""
    row = Row("train, either of two ranks killed at random instants")
    words = ["train", "copy", "--scale", "tiny", "--resume", "--set", "train.steps=8"]
    words += [word for setting in OFTEN for word in ("--set", setting)]

    def begin(run: Path) -> list[int]:
        common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "PATIENCE": "10"}
        return [
            start(
                [*words, "--out", str(run)],
                out=scratch / f"rank{rank}.txt",
                environment={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            )
            for rank in range(2)
        ]

    begun = time.monotonic()
    assert [wait(child) for child in begin(scratch / "ranks-whole")] == [0, 0], last_line(scratch / "rank0.txt")
    seconds, reference = time.monotonic() - begun, evidence(scratch / "ranks-whole")
    while row.faults < count:
        run = scratch / "ranks"
        shutil.rmtree(run, ignore_errors=True)
        step = -1
        for _ in range(dice.randint(1, 3)):
            children = begin(run)
            victim = dice.randrange(2)
            code = strike(children[victim], dice.uniform(0, seconds))
            if code == -signal.SIGKILL:
                row.faults += 1
                os.kill(children[1 - victim], signal.SIGTERM)  # as torchrun does
                wait(children[1 - victim], 30)  # which kills it then
            else:
                wait(children[1 - victim])
            row.lost(lost(run, step, reference))
            step = max(step, reached(run))
        codes = [wait(child) for child in begin(run)]
        if codes != [0, 0]:
            row.stuck(f"codes {codes}: {last_line(scratch / 'rank0.txt')}")
        elif evidence(run) != reference:
            row.different("ranks")
    return row
