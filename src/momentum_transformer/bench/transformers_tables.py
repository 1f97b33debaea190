"""The record of `momentum bench --transformers` as tables, and what was promised of it."""

from typing import Any, NamedTuple

from ..report.tables import Table
from .record import commit_of
from .targets import Record
from .transformers_models import WORKS

AT = 2048  # tokens, for a layer
BARS = {  # times faster, a whole mixer layer
    ("gated delta", "prefill"): 1.8,
    ("gated delta", "training"): 2.5,
    ("KDA", "prefill"): 8.0,
    ("KDA", "training"): 8.0,
    ("Mamba-2", "prefill"): 3.0,
    ("Mamba-2", "training"): 3.0,
}
DECODING = {"gated delta": 1.0, "KDA": 1.0, "Mamba-2": 1.3}  # a whole model; Mamba-2 has nothing but mixers
EVEN = 0.97  # a ratio from here on counts as even: noise alone makes equal times differ this much


class Bar(NamedTuple):
    what: str
    asked: str
    found: str
    met: bool
    most: str = ""  # the ceiling: what would be found if ours took no longer than the projections alone


def ratio(row: Record) -> float | None:
    return row["theirs"] / row["ours"] if "theirs" in row and "ours" in row else None


def bars(record: Record) -> list[Bar]:
    """Everything that was promised, with what was measured; cells that were not measured are left out."""
    found = []
    for (kind, work), asked in BARS.items():
        for row in _rows(record, of="layer", kind=kind, work=work, n=AT):
            times = ratio(row)
            if times is not None:
                what = f"{kind} layer, {work}, {AT:,} tokens, {row['dtype']}"
                most = f"{row['theirs'] / row['products']:.2f} ×"
                found.append(Bar(what, f"≥ {asked:g} ×", f"{times:.2f} ×", times >= asked, most))
    for kind, asked in DECODING.items():
        for row in _rows(record, of="model", kind=kind, work="decoding"):
            times = row["theirs"] / row["ours"]
            what = f"{kind} model, decoding after {row['n']:,} tokens, {row['dtype']}"
            most = f"{row['theirs'] / row['products']:.2f} ×" if "products" in row else ""
            met = times >= (asked if asked > 1 else EVEN)
            found.append(Bar(what, f"≥ {asked:g} ×", f"{times:.2f} ×", met, most))
    for row in record["memory"]:
        times = ratio(row)
        if times is not None:
            what = f"{row['kind']} layer, peak memory of a training step, {row['n']:,} tokens"
            found.append(Bar(what, "lower", f"{row['ours'] / 1e6:.0f} of {row['theirs'] / 1e6:.0f} MB", times > 1))
    return found


def line(row: Record) -> str:
    """One cell, for the terminal."""
    times = ratio(row)
    said = f"{row['kind']} {row['of']}, {row['work']}, {row['n']:,} tokens, {row['dtype']}: "
    said += ", ".join(
        f"{name} {_milliseconds(row, who)}{' ms' if who in row else ''}"
        for name, who in (("Transformers", "theirs"), ("ours", "ours"))
    )
    return said if times is None else f"{said}, {times:.2f} times faster"


def bars_table(record: Record, title: str = "What was promised") -> Table:
    rows = tuple((bar.what, bar.asked, bar.found, bar.most, "yes" if bar.met else "no") for bar in bars(record))
    columns = ("", "asked", "found", "ceiling", "met")
    return Table(title, columns, rows)


def times_table(record: Record, of: str) -> Table:
    """Milliseconds of Transformers alone and of ours, for each work; decoding is milliseconds a token."""
    works = ("prefill", "training") if of == "layer" else ("prefill", "training", "decoding")
    keys = dict.fromkeys((row["kind"], row["dtype"], row["n"]) for row in _rows(record, of=of))
    lines = []
    for kind, dtype, n in keys:
        cells = [f"{kind}, {dtype}", f"{n:,}"]
        for work in works:
            row = _rows(record, of=of, kind=kind, dtype=dtype, n=n, work=work)[0]
            times = ratio(row)
            cells += [
                _milliseconds(row, "theirs"),
                _milliseconds(row, "ours"),
                "" if times is None else f"{times:.2f} ×",
            ]
        lines.append(tuple(cells))
    columns = ["", "tokens"]
    for work in works:
        columns += [f"{work}: Transformers", "ours", ""]
    title = f"One {of}: milliseconds{', decoding a token' if of == 'model' else ''}"
    return Table(title, tuple(columns), tuple(lines))


def markdown(record: Record, *elsewhere: Record) -> str:
    """The tables of docs/performance.md; of other machines only what was promised."""
    others = [
        bars_table(one, f"The same on {one['cpu']}, {one['started']}, commit {commit_of(one)}") for one in elsewhere
    ]
    parts = [bars_table(record), *others, times_table(record, "layer"), times_table(record, "model")]
    subjects = "; ".join(f"*{kind}*: {described}" for kind, described in record["subjects"].items())
    commit = commit_of(record)
    where = (
        f"Width {record['width']:,}. {subjects}. Models have {record['layers']} layers and a vocabulary of "
        f"{record['vocabulary']:,}. Transformers {record['transformers']}, torch {record['versions']['torch']}, one "
        f"thread of {record['cpu']}, processor time, {record['started']}, commit {commit}. "
        f"Command: `{record['command']}`."
    )
    return "\n".join(f"{table.title}:\n\n{table.markdown()}" for table in parts) + f"\n{where}\n"


def headline(record: Record, *elsewhere: Record) -> str:
    """One sentence for the README."""
    machines = "; ".join(f"on one thread of {one['cpu']} {_gains(one)} faster" for one in (record, *elsewhere))
    return (
        f"A mixer layer of Transformers {record['transformers']} with {AT:,} tokens, prefill and training step: "
        f"{machines}. Command: `{record['command']}`.\n"
    )


def _gains(record: Record) -> str:
    said = []
    for kind in record["subjects"]:
        times = [ratio(_rows(record, of="layer", kind=kind, work=work, n=AT, dtype="float32")[0]) for work in WORKS]
        said.append(f"{kind} {' and '.join('–' if one is None else f'{one:.1f}' for one in times)} times")
    return ", ".join(said)


def _rows(record: Record, **wanted: Any) -> list[dict[str, Any]]:
    return [row for row in record["rows"] if all(row[name] == value for name, value in wanted.items())]


def _milliseconds(row: Record, who: str) -> str:
    if who in row:
        return f"{1e3 * row[who]:,.3g}" if row[who] < 1 else f"{1e3 * row[who]:,.0f}"
    return f"not run: ≈ {row['skipped'][who]:.0f} s"
