"""Records as tables: the same rows for the terminal and for the docs."""

from collections.abc import Mapping
from typing import Any

import rich.box
import rich.table
from rich.markup import escape

from ..report.tables import Table
from .measured_shapes import Shape
from .targets import LARGEST, LINEAR, Record, all_targets, best, blocks, crossover, gemm_share, long_rows
from .timing import DIRECTIONS

COLOURS = {"yes": "green", "agrees": "green", "no": "red", "disagrees": "red"}


def backends_table(record: Record) -> Table:
    """Which backend is active, and why another is not."""
    rows = []
    for status in record["backends"]:
        state = "active" if status["name"] == record["active"] else "available" if status["available"] else "no"
        rows.append((status["name"], state, status["reason"]))
    return Table("Backends", ("backend", "", "why"), tuple(rows))


def contestants_table(record: Record) -> Table:
    """Which contestants passed the gate, as a table."""
    rows = []
    for one in record["contestants"]:
        error = "" if one["error"] is None else f"{one['error']:.1e}"
        rows.append((one["name"], one["computes"], one["status"], error, one["reason"]))
    columns = ("contestant", "computes", "gate", "error", "note")
    return Table("The gate: outputs and gradients against the quadratic form in float64", columns, tuple(rows))


def shape_table(record: Record, shape: Shape) -> Table:
    """Everyone at one shape: best (median) milliseconds, times ours, share of the GEMM rate."""
    active = record["active"]
    both = [blocks(record, direction)[shape] for direction in DIRECTIONS]
    rows = []
    for forward, whole in zip(*(block["rows"] for block in both), strict=True):
        share = gemm_share(both[0], forward["name"])
        cells = [forward["name"]]
        for row, block in zip((forward, whole), both, strict=True):
            # softmax stands against momentum, everyone else against the same function
            ours = best(block, f"{active} {row['computes'] if row['computes'] != 'softmax' else 'momentum'}")
            cells += [milliseconds(row), f"{row['best'] / ours:.2f}" if "best" in row and ours else ""]
        cells.insert(3, "" if share is None else f"{100 * share:.0f} %")
        rows.append(tuple(cells))
    gemm = " and ".join(f"{block['gemm_flops'] / 1e9:.0f}" for block in both)
    columns = ("contestant", "forward", f"× {active}", "of GEMM", "+ backward", f"× {active}")
    title = f"(b, h, n, d) = {shape}: best (median) ms; GEMM {gemm} GFLOP/s"
    return Table(title, columns, tuple(rows))


def lengths_table(record: Record) -> Table:
    """Time against n, and the lengths from which ours stays faster than softmax."""
    rows: dict[int, list[str]] = {}
    columns = ["n"]
    for direction, what in zip(DIRECTIONS, ("forward", "+ backward"), strict=True):
        found = [block for block in record["lengths"] if block["direction"] == direction]
        columns += [f"{row['name'].removesuffix(' momentum')}: {what}" for row in found[0]["rows"]]
        for block in found:
            cells = rows.setdefault(block["shape"][2], [f"{block['shape'][2]:,}"])
            cells += [milliseconds(row, median=False) for row in block["rows"]]
    b, h, _, d = record["lengths"][0]["shape"]
    title = (
        f"Momentum against softmax by length: best ms, b = {b}, h = {h}, d = {d}; in brackets what was not run. "
        f"{crossovers(record)}."
    )
    return Table(title, tuple(columns), tuple(map(tuple, rows.values())))


def crossovers(record: Record) -> str:
    """From which length ours is faster than softmax, in words."""
    name = f"{record['active']} momentum"
    parts = []
    for direction in DIRECTIONS:
        n = crossover(record, direction, name)
        shortest = min((block["shape"][2] for block in record["lengths"]), default=0)
        where = "at no length" if n is None else f"from n ≈ {n:.0f}" if n > shortest else f"from n = {n:.0f} or less"
        parts.append(f"{where} ({direction})")
    return f"{name.capitalize()} is faster than SDPA {' and '.join(parts)}"


def memory_table(record: Record) -> Table:
    """Peak memory of forward and backward, inputs included."""
    rows = []
    for row in record["memory"]:
        peak = f"{row['peak'] / 1e6:.0f}" if "peak" in row else f"skipped: {row['skipped']}"
        ratio = f"{row['ratio']:.2f}" if "ratio" in row else ""
        rows.append((row["name"], str(Shape(*row["shape"])), f"{row['tensors'] / 1e6:.0f}", peak, ratio))
    columns = ("contestant", "(b, h, n, d)", "tensors: MB", "peak: MB", "ratio")
    return Table(
        "Memory of forward and backward, inputs included, against q, k, v, y and their gradients", columns, tuple(rows)
    )


def targets_table(record: Record) -> Table:
    """Every target, what was measured at each shape, and whether it was met."""
    shapes = list(blocks(record, "forward"))
    rows = []
    for target in all_targets(record):
        cells = (target.cells.get(shape) for shape in shapes)
        rows.append((target.name, target.bound, *(cell.text if cell else "" for cell in cells), target.met()))
    columns = (f"target, for {record['active']}", "bound", *map(str, shapes), "met")
    return Table("Targets", columns, tuple(rows))


def long_table(record: Record) -> Table:
    """Very long sequences, forward and backward."""
    columns = ("dtype", "tokens", "seconds", "× half", f"≤ {LINEAR:g}", "tensors: GB", "peak: GB")
    title = f"Very long sequences: {record['active']} momentum, forward and backward, h = 8, d = 64"
    return Table(title, (*columns, f"≤ {LARGEST / 1e9:.0f} GB"), tuple(long_rows(record)))


def terminal(table: Table) -> rich.table.Table:
    """The table for the terminal: with colours, numbers to the right."""
    drawn = rich.table.Table(
        title=escape(table.title),
        title_justify="left",
        title_style="bold",
        box=rich.box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    short = all(len(row[0]) <= 24 for row in table.rows)
    for i, column in enumerate(table.columns):
        numbers = i > 0 and any(row[i][:1].isdigit() for row in table.rows)
        header = escape(column.replace(" ", "\n") if numbers else column)
        drawn.add_column(
            header,
            justify="right" if numbers else "left",
            no_wrap=numbers or (i == 0 and short),
            min_width=max(len(row[0]) for row in table.rows) if i == 0 and short and table.rows else None,
            overflow="ellipsis" if numbers else "fold",  # names and reasons stay whole
        )
    for row in table.rows:
        drawn.add_row(*(f"[{COLOURS[cell]}]{cell}[/]" if cell in COLOURS else escape(cell) for cell in row))
    return drawn


def markdown(record: Record) -> str:
    """Everything the docs show of a record, the picture included."""
    sections = [targets_table(record)]
    if record["long"]:
        sections.append(long_table(record))
    sections += [shape_table(record, shape) for shape in blocks(record, "forward")]
    sections += [lengths_table(record), memory_table(record), contestants_table(record)]
    first, *rest = (f"**{table.title}**\n\n{table.markdown()}" for table in sections)
    picture = "![Time and memory against the length](results/bench.svg)\n"
    return "\n".join([where(record, f"{record['threads']} threads"), first, picture, *rest])


def where(record: Record, threads: str) -> str:
    """On which machine, with which versions and by which command a record was made."""
    versions = {**record["versions"], **record["peers"]}
    installed = ", ".join(f"{name} {number}" for name, number in versions.items() if number)
    missing = [name for name, number in record["peers"].items() if not number]
    absent = f" Not installed: {', '.join(missing)}." if missing else ""
    return (
        f"float32, causal, β = {record['beta']:g}, {threads} on {record['cores']} cores of "
        f"{record['cpu']}, Python {record['python']}, {installed}.{absent} Allocator: {record['allocator']}. "
        f"Command: `{record['command']}`, {record['started']}, commit {(record['commit'] or 'unknown')[:12]}"
        f"{' with changes' if record['dirty'] else ''}.\n"
    )


def milliseconds(row: Mapping[str, Any], *, median: bool = True) -> str:
    """The best, with the median in brackets; or why there is none."""
    if "best" not in row:
        return f"skip: {row['skipped']}" if median else f"({row['skipped']})"
    numbers = [row[name] * 1e3 for name in (("best", "median") if median else ("best",))]
    digits = [0 if number >= 100 else 1 if number >= 10 else 2 if number >= 1 else 3 for number in numbers]
    texts = [f"{number:,.{places}f}" for number, places in zip(numbers, digits, strict=True)]
    return texts[0] if not median else f"{texts[0]} ({texts[1]})"
