"""`momentum bench`: measure, show every table as soon as it is complete, write the record and the picture."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from ..backend.choose import active_backend
from ..backend.choose import backends as statuses
from ..install import install_hint
from ..training.allocator import keep_freed_memory
from . import attention_tables as tables
from . import family_tables
from .family_suite import FULL_FAMILY, QUICK_FAMILY, run_family
from .measured_shapes import BenchError, Shape, parse_shape
from .suite import FULL, QUICK, run, write


def run_bench(
    console: Console,
    *,
    shapes: Sequence[str],
    backends: bool,
    peers: bool,
    threads: int | None,
    out: Path | None,
    plot: Path | None,
    quick: bool,
    family: bool = False,
    transformers: bool = False,
) -> None:
    if backends:
        record = {"active": active_backend(), "backends": [status._asdict() for status in statuses()]}
        console.print(tables.terminal(tables.backends_table(record)))
        return
    if transformers:
        _bench_transformers(console, out, quick=quick)
        return
    if threads is not None and threads < 1:
        raise BenchError(f"--threads must be 1 or more, not {threads}")
    if family and plot:
        raise BenchError("--family has no picture: leave out --plot, or --family")
    wanted = tuple(dict.fromkeys(map(parse_shape, shapes)))
    draw = _painter() if plot else None
    if not quick:
        keep_freed_memory()
        console.print("This takes some minutes; each table appears when it is complete.\n")
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    measure = _measure_family if family else _measure
    try:
        record = measure(console, wanted, peers=peers, quick=quick)
    finally:
        torch.set_num_threads(before)
    if out:
        write(record, out)
        console.print(f"every number: {out}", soft_wrap=True)
    if plot and draw:
        plot.parent.mkdir(parents=True, exist_ok=True)
        plot.write_text(draw(record), encoding="utf-8")
        console.print(f"picture: {plot}", soft_wrap=True)


def _measure(console: Console, shapes: tuple[Shape, ...], *, peers: bool, quick: bool) -> dict[str, Any]:
    plan = replace(QUICK if quick else FULL, peers=peers)
    plan = replace(plan, shapes=shapes) if shapes else plan
    record = run(plan, lambda part, so_far: _show(console, part, so_far))
    console.print(tables.terminal(tables.memory_table(record)))
    if not quick:
        console.print(tables.terminal(tables.targets_table(record)))
    return record


def _measure_family(console: Console, shapes: tuple[Shape, ...], *, peers: bool, quick: bool) -> dict[str, Any]:
    plan = replace(QUICK_FAMILY if quick else FULL_FAMILY, peers=peers)
    plan = plan.at(shapes) if shapes else plan
    record = run_family(plan, torch.get_num_threads(), lambda part, so_far: _show_family(console, part, so_far))
    console.print(tables.terminal(tables.memory_table(record)))
    if not quick:
        for threads in family_tables.threads_of(record):
            console.print(tables.terminal(family_tables.targets_table(record, threads)))
        console.print(tables.terminal(family_tables.bounds_table(record)))
    return record


def _show_family(console: Console, part: str, record: dict[str, Any]) -> None:
    """Show who takes part, or what was timed last."""
    if part == "contestants":
        console.print(tables.terminal(tables.backends_table(record)))
        table = family_tables.gate_table(record)
    else:
        table = family_tables.block_table(family_tables.together(record)[-1])
    console.print(tables.terminal(table))


def _bench_transformers(console: Console, out: Path | None, *, quick: bool) -> None:
    """A part of its own: one thread, nothing of the other options."""
    from . import transformers_tables as rows
    from .transformers_models import FULL_PLAN, QUICK_PLAN, run_transformers

    if not quick:
        console.print("This takes a quarter of an hour on a quiet machine; each line is a cell.\n")

    def show_and_save(record: dict[str, Any]) -> None:
        console.print(rows.line(record["rows"][-1]))
        if out:
            write(record, out)  # a run that is cut off keeps what it has measured

    record = run_transformers(QUICK_PLAN if quick else FULL_PLAN, show_and_save)
    for table in (rows.times_table(record, "layer"), rows.times_table(record, "model"), rows.bars_table(record)):
        console.print(tables.terminal(table))
    if out:
        write(record, out)
        console.print(f"every number: {out}", soft_wrap=True)


def _show(console: Console, part: str, record: dict[str, Any]) -> None:
    """The part of the record that has just been completed."""
    if part == "contestants":
        console.print(tables.terminal(tables.backends_table(record)))
        table = tables.contestants_table(record)
    elif part == "shapes":
        table = tables.shape_table(record, Shape(*record["shapes"][-1]["shape"]))
    else:
        table = {"lengths": tables.lengths_table, "long": tables.long_table}[part](record)
    console.print(tables.terminal(table))


def _painter() -> Any:
    try:
        from .plot import draw
    except ModuleNotFoundError as error:
        raise BenchError(f"the picture needs {error.name}: {install_hint('all')}") from None
    return draw
