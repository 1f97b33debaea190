"""python -m tests.faults [--quick] [--out results/faults.json] [--only WORD]: faults in turn, and what they cost."""

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from momentum_transformer.bench.record import machine, save

from . import studies, training
from .row import Row
from .server import run_with_shim

COSTS = ("stuck", "lost", "different")
COMMAND = "python -m tests.faults --out results/faults.json"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few of each kind, in seconds")
    parser.add_argument("--only", default="", help="these rows or parts alone, by name, with commas")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="JSON, to which every part is added as it ends; what it has is kept")
    given = parser.parse_args()
    run_with_shim()
    torch.set_num_threads(1)
    result = read(given.out)
    with tempfile.TemporaryDirectory() as folder:
        for name, make in parts(Path(folder), quick=given.quick, seed=given.seed):
            if name in result["done"] or (given.only and not {name, name.split("#")[0]} & {*given.only.split(",")}):
                continue
            record = make().record()
            result = {
                "command": COMMAND,
                "rows": add(result["rows"], record),
                "done": [*result["done"], name],
                "machine": machine(),
            }
            sys.stdout.write(f"{json.dumps(record)}\n")
            sys.stdout.flush()
            save(result, given.out)
    return 1 if any(row[cost] for row in result["rows"] for cost in COSTS) else 0


def read(path: Path | None) -> dict[str, Any]:
    """What an earlier start has found."""
    found: dict[str, Any] = json.loads(path.read_text()) if path is not None and path.exists() else {}
    return {"rows": [], "done": [], **found}


def add(rows: list[dict[str, Any]], record: dict[str, Any]) -> list[dict[str, Any]]:
    """One more record, added to the row of the same name if there is one."""
    for row in rows:
        if row["what"] == record["what"]:
            row |= {name: row[name] + record[name] for name in ("faults", *COSTS, "reasons")}
            return rows
    return [*rows, record]


def parts(scratch: Path, *, quick: bool, seed: int) -> Iterator[tuple[str, Callable[[], Row]]]:
    """Every row by its name, large ones in parts, NAME#NUMBER; each with dice of its own."""

    def dice(name: str) -> random.Random:
        return random.Random(f"{seed} {name}")

    def times(count: int, small: int) -> int:
        return small if quick else count

    @cache
    def cases() -> list[training.Case]:
        return [training.Case(i, scratch) for i in range(len(training.CASES))]

    def few() -> list[training.Case]:
        return [cases()[0]] if quick else [cases()[0], cases()[3]]

    def report() -> studies.Command:
        return studies.report_command(scratch, scratch / "study")

    def kills(name: str) -> Row:
        return training.kills(cases(), times(100, 6), dice(name))

    kill = studies.commands_killed
    for number in range(times(20, 1)):
        yield f"kills#{number}", partial(kills, f"kills#{number}")
    rows: dict[str, Callable[[], Row]] = {
        "before": lambda: training.crashes(few(), times(1, 23), mode="before"),
        "after": lambda: training.crashes(few(), times(1, 2), mode="after"),
        "power": lambda: training.crashes(few(), times(1, 29), mode="before", power=True),
        "full": lambda: training.full_disk(few(), times(1, 60)),
        "read-only": lambda: training.read_only(few()),
        "signals": lambda: training.signals(cases(), times(100, 4), dice("signals")),
        "terminal": lambda: training.terminals(cases()[0], times(25, 1), dice("terminal")),
        "owners": lambda: training.two_owners(cases(), times(50, 3), dice("owners")),
        "ranks": lambda: training.ranks(times(40, 1), scratch, dice("ranks")),
    }
    if not quick:
        rows |= {
            "processes": lambda: studies.processes(cases()[0], 25, dice("processes")),
            "torchrun": lambda: studies.torchrun(8, scratch, dice("torchrun")),
        }
    rows |= {
        "reproduce": lambda: kill(studies.reproduce_command(scratch), times(30, 1), dice("reproduce")),
        "queue": lambda: kill(studies.queue_command(scratch), times(40, 1), dice("queue")),
        "report": lambda: kill(report(), times(30, 1), dice("report")),
        "report operations": lambda: studies.commands_crashed(report(), scratch / "report", times(1, 40)),
        "cache": lambda: kill(studies.cache_command(scratch), times(40, 1), dice("cache")),
        "cache operations": lambda: studies.commands_crashed(
            studies.cache_command(scratch), scratch / "cache", times(1, 40)
        ),
        "distillation": lambda: kill(studies.distillation_command(scratch), times(40, 1), dice("distillation")),
    }
    if not quick:
        rows["jobs"] = lambda: studies.jobs_killed(studies.reproduce_command(scratch), 6, dice("jobs"))
    yield from rows.items()


if __name__ == "__main__":
    sys.exit(main())
