"""A record of the family as tables, for the terminal and for the docs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..report.tables import Table
from .attention_tables import contestants_table, memory_table, milliseconds, where
from .family_targets import columns, family_targets, limits
from .measured_shapes import Shape
from .targets import Record, best


def threads_of(record: Record) -> list[int]:
    """The numbers of threads that were measured."""
    return sorted({block["threads"] for block in record["family"]})


def block_table(blocks: Sequence[Mapping[str, Any]]) -> Table:
    """What was timed together, by threads: best (median) milliseconds, and how many times ours a peer takes."""
    rows = []
    for same in zip(*(block["rows"] for block in blocks), strict=True):
        cells = [same[0]["name"]]
        for block, row in zip(blocks, same, strict=True):
            ours = best(block, f"auto {row['computes']}")
            peer = not row["name"].startswith("auto ") and "best" in row and ours
            cells += [milliseconds(row), f"{row['best'] / ours:.2f}" if peer else ""]
        rows.append(tuple(cells))
    heads = (head for block in blocks for head in (_threads(block["threads"]), "× auto"))
    title = f"(b, h, n, d) = {Shape(*blocks[0]['shape'])}, {blocks[0]['direction']}: best (median) ms"
    return Table(title, ("contestant", *heads), tuple(rows))


def together(record: Record) -> list[list[Mapping[str, Any]]]:
    """The blocks that differ in the number of threads only."""
    found: dict[Any, list[Mapping[str, Any]]] = {}
    for block in record["family"]:
        found.setdefault((block["group"], *block["shape"], block["direction"]), []).append(block)
    return list(found.values())


def times_table(record: Record) -> Table:
    """Everyone, everywhere."""
    rows: list[tuple[str, ...]] = []
    heads: tuple[str, ...] = ()
    for blocks in together(record):
        table = block_table(blocks)
        heads = table.columns
        rows += [(str(Shape(*blocks[0]["shape"])), blocks[0]["direction"], *row) for row in table.rows]
    return Table("Best (median) ms", ("(b, h, n, d)", "", *heads), tuple(rows))


def targets_table(record: Record, threads: int = 1) -> Table:
    """Every target, what was measured at each shape, and whether it was met."""
    shapes = columns(record)
    rows = []
    for target in family_targets(record, threads):
        cells = (target.cells.get(shape) for shape in shapes)
        rows.append((target.name, target.bound, *(cell.text if cell else "" for cell in cells), target.met()))
    title = f"Targets of the family, {_threads(threads)}; a single token stands below its heads and width"
    return Table(title, ("target", "bound", *map(str, shapes), "met"), tuple(rows))


def bounds_table(record: Record, threads: int = 1) -> Table:
    """Milliseconds of our calls that a target speaks of, beside what bounds them."""
    rows = []
    for one in limits(record, threads):
        if one.asked is None:
            continue
        seconds = (one.operations, one.bytes, one.operations + one.bytes, one.measured, one.asked)
        what = f"{one.computes}, {one.direction}, {one.shape}"
        rows.append((what, *(milliseconds({"best": x}, median=False) for x in seconds), one.binding))
    title = "What bounds the members: ms of their operations at the GEMM rate, of their bytes at the triad's rate"
    heads = ("operations", "bytes", "both", "measured", "targets ask", "bound by")
    return Table(f"{title}, {_threads(threads)}", ("ours", *heads), tuple(rows))


def elsewhere_table(record: Record) -> Table:
    """The targets of one thread in a record of another machine, whose rates are in the title."""
    title = (
        f"The same targets on {record['cpu']}, {record['started']}, commit {record['commit'][:12]}. {rates(record)}"
    )
    return replace(targets_table(record), title=title.rstrip("."))


def _elsewhere(table: Table, record: Record) -> Table:
    return replace(table, title=f"{table.title}, on {record['cpu']}")


def gate_table(record: Record) -> Table:
    """Who passed the gate, and which backend serves ours."""
    title = (
        "The gate: outputs and gradients against the recurrence, of linear and momentum the quadratic form, in float64"
    )
    return replace(contestants_table(record), title=title)


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def rates(record: Record, threads: int = 1) -> str:
    """The machine's, in words."""
    blocks = [block for block in record["family"] if block["threads"] == threads and block["group"] == "members"]
    gemm, triad = ([block[name] / 1e9 for block in blocks] for name in ("gemm_flops", "triad_bytes"))
    return (
        f"With {_threads(threads)} GEMM ran at {min(gemm):.0f} to {max(gemm):.0f} GFLOP/s, "
        f"the triad at {min(triad):.0f} to {max(triad):.0f} GB/s."
    )


def markdown(record: Record, *elsewhere: Record) -> str:
    """Everything the docs show of a record, and the targets in records of other machines."""
    counts = threads_of(record)
    sections = [targets_table(record, count) for count in counts]
    sections += [elsewhere_table(other) for other in elsewhere]
    sections += [bounds_table(record), *(_elsewhere(bounds_table(other), other) for other in elsewhere)]
    sections += [times_table(record), memory_table(record), gate_table(record)]
    shown = (f"**{table.title}**\n\n{table.markdown()}" for table in sections)
    machine = " ".join(rates(record, count) for count in counts)
    return "\n".join([f"{where(record, ' and '.join(map(_threads, counts)))}{machine}\n", *shown])
