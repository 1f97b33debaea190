"""python -m tests.faults [--quick] [--out results/faults.json] [--only WORD]: faults in turn, and what they cost."""

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from benchmarks.record import machine, save

from . import studies, training
from .row import Row
from .server import run_with_shim

COMMAND = "python -m tests.faults --out results/faults.json"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few of each kind, in seconds")
    parser.add_argument("--only", default="", help="these rows alone, by the names in this file, separated by commas")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    run_with_shim()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        rows = run_rows(Path(folder), quick=given.quick, only=given.only, seed=given.seed)
    if given.out is not None:
        save({"command": COMMAND, "rows": merged(rows, given.out), "machine": machine()}, given.out)
    return int(any(row["stuck"] or row["lost"] or row["different"] for row in rows))


def merged(rows: list[dict[str, Any]], out: Path) -> list[dict[str, Any]]:
    """These rows in place of those of the same name, and the others that are in the file already."""
    before = json.loads(out.read_text())["rows"] if out.exists() else []
    return list(({row["what"]: row for row in before} | {row["what"]: row for row in rows}).values())


def run_rows(scratch: Path, *, quick: bool, only: str, seed: int) -> list[dict[str, Any]]:
    dice = random.Random(seed)
    cases = [training.Case(i, scratch) for i in range(len(training.CASES))]
    few = [cases[0]] if quick else [cases[0], cases[3]]

    def report() -> studies.Command:
        return studies.report_command(scratch, scratch / "study")

    def times(count: int, small: int) -> int:
        return small if quick else count

    rows: dict[str, Callable[[], Row]] = {
        "kills": lambda: training.kills(cases, times(2000, 12), dice),
        "before": lambda: training.crashes(few, times(1, 11), mode="before"),
        "after": lambda: training.crashes(few, times(1, 13), mode="after"),
        "power": lambda: training.crashes(few, times(1, 13), mode="before", power=True),
        "full": lambda: training.full_disk(few, times(1999, 40_000)),
        "read-only": lambda: training.read_only(few),
        "signals": lambda: training.signals(cases, times(400, 8), dice),
        "terminal": lambda: training.terminals(cases[0], times(50, 1), dice),
        "owners": lambda: training.two_owners(cases, times(100, 2), dice),
        "ranks": lambda: training.ranks(times(100, 1), scratch, dice),
    }
    if not quick:
        rows |= {
            "processes": lambda: studies.processes(cases[0], 25, dice),
            "torchrun": lambda: studies.torchrun(8, scratch, dice),
        }
    rows |= {
        "reproduce": lambda: studies.commands_killed(studies.reproduce_command(scratch), times(60, 2), dice),
        "queue": lambda: studies.commands_killed(studies.queue_command(scratch), times(100, 2), dice),
        "report": lambda: studies.commands_killed(report(), times(60, 1), dice),
        "report operations": lambda: studies.commands_crashed(report(), scratch / "report", times(1, 20)),
        "cache": lambda: studies.commands_killed(studies.cache_command(scratch), times(100, 2), dice),
        "cache operations": lambda: studies.commands_crashed(
            studies.cache_command(scratch), scratch / "cache", times(1, 20)
        ),
        "distillation": lambda: studies.commands_killed(studies.distillation_command(scratch), times(100, 2), dice),
    }
    if not quick:
        rows["jobs"] = lambda: studies.jobs_killed(studies.reproduce_command(scratch), 10, dice)
    done = []
    for name, make in rows.items():
        if not only or name in only.split(","):
            begun = time.monotonic()
            record = make().record()
            done.append(record)
            sys.stdout.write(f"{json.dumps(record)} {time.monotonic() - begun:.0f} s\n")
            sys.stdout.flush()
    return done


if __name__ == "__main__":
    sys.exit(main())
