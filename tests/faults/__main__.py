"""python -m tests.faults [--quick] [--out results/faults.json] [--only WORD]: faults in turn, and what they cost."""

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from benchmarks.record import machine, save

from . import studies, training
from .row import Row
from .server import run_with_shim

COSTS = ("stuck", "lost", "different")
COMMAND = "python -m tests.faults --out results/faults.json"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few of each kind, in seconds")
    parser.add_argument("--only", default="", help="these rows alone, by the names in this file, separated by commas")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="JSON, to which every row is added as it ends")
    given = parser.parse_args()
    run_with_shim()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        clean = True
        for record in run_rows(Path(folder), quick=given.quick, only=given.only, seed=given.seed):
            sys.stdout.write(f"{json.dumps(record)}\n")
            sys.stdout.flush()
            clean = clean and not any(record[cost] for cost in COSTS)
            if given.out is not None:
                rows = json.loads(given.out.read_text())["rows"] if given.out.exists() else []
                save({"command": COMMAND, "rows": add(rows, record), "machine": machine()}, given.out)
    return 0 if clean else 1


def add(rows: list[dict[str, Any]], record: dict[str, Any]) -> list[dict[str, Any]]:
    """One more row, added to the one of the same name if there is one: of another seed, or after an interruption."""
    for row in rows:
        if row["what"] == record["what"]:
            row |= {name: row[name] + record[name] for name in ("faults", *COSTS, "reasons")}
            return rows
    return [*rows, record]


def run_rows(scratch: Path, *, quick: bool, only: str, seed: int) -> Iterator[dict[str, Any]]:
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
        "signals": lambda: training.signals(cases, times(100, 8), dice),
        "terminal": lambda: training.terminals(cases[0], times(25, 1), dice),
        "owners": lambda: training.two_owners(cases, times(50, 2), dice),
        "ranks": lambda: training.ranks(times(40, 1), scratch, dice),
    }
    if not quick:
        rows |= {
            "processes": lambda: studies.processes(cases[0], 25, dice),
            "torchrun": lambda: studies.torchrun(8, scratch, dice),
        }
    rows |= {
        "reproduce": lambda: studies.commands_killed(studies.reproduce_command(scratch), times(30, 2), dice),
        "queue": lambda: studies.commands_killed(studies.queue_command(scratch), times(40, 2), dice),
        "report": lambda: studies.commands_killed(report(), times(30, 1), dice),
        "report operations": lambda: studies.commands_crashed(report(), scratch / "report", times(1, 20)),
        "cache": lambda: studies.commands_killed(studies.cache_command(scratch), times(40, 2), dice),
        "cache operations": lambda: studies.commands_crashed(
            studies.cache_command(scratch), scratch / "cache", times(1, 20)
        ),
        "distillation": lambda: studies.commands_killed(studies.distillation_command(scratch), times(40, 2), dice),
    }
    if not quick:
        rows["jobs"] = lambda: studies.jobs_killed(studies.reproduce_command(scratch), 6, dice)
    for name, make in rows.items():
        if not only or name in only.split(","):
            yield make().record()


if __name__ == "__main__":
    sys.exit(main())
