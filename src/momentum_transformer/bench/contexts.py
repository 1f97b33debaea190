"""Decoding against the length of the context, as bench/decoding_speed.py has measured it: a figure and a table."""

from collections.abc import Callable, Mapping
from typing import Any

from matplotlib import pyplot as plt

from ..report.figures import COLOURS, DASHES, MARKERS, STYLE, svg
from ..report.tables import Table

Record = Mapping[str, Any]
SHOWN = {"softmax": "softmax with a key-value cache"}


def draw(record: Record) -> str:
    """Tokens a second and bytes of state on logarithmic axes, as SVG text."""
    panels = {"tokens_per_second": "tokens a second", "state_bytes": "state (bytes)"}
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, 2, figsize=(9, 3.6))
        for (value, label), axis in zip(panels.items(), axes, strict=True):
            for model in dict.fromkeys(row["model"] for row in record["rows"]):
                points = [(row["context"], row[value]) for row in record["rows"] if row["model"] == model]
                look = {"color": COLOURS[model], "ls": DASHES[model], "marker": MARKERS[model]}
                axis.plot(*zip(*points, strict=True), label=SHOWN.get(model, model), lw=1.4, ms=4, **look)
            contexts = sorted({row["context"] for row in record["rows"]})
            axis.set(xscale="log", yscale="log", xlabel="context (tokens)", ylabel=label)
            axis.set_xticks(contexts, [short(context) for context in contexts])
            axis.set_xticks([], minor=True)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return svg(figure)


def markdown(record: Record) -> str:
    """The same numbers as a table, with the command that measured them."""
    rows = {(row["model"], row["context"]): row for row in record["rows"]}
    models, contexts = (list(dict.fromkeys(key[i] for key in rows)) for i in range(2))

    def line(context: int, cell: Callable[[Mapping[str, Any]], str]) -> list[str]:
        return [cell(rows[model, context]) for model in models]

    columns = ("context", *(f"{model}: tokens/s" for model in models), *(f"{model}: state" for model in models))
    cells = tuple(
        (
            short(context),
            *line(context, lambda row: f"{row['tokens_per_second']:,.0f}"),
            *line(context, lambda row: size(row["state_bytes"])),
        )
        for context in contexts
    )
    machine = record["machine"]
    where = (
        f"{record['what']}; {record['meaning']} ({machine['cpu']}, torch {machine['torch']}), {machine['started']}. A "
        "context is a cache of so many random keys and values, or a random state: it was not run through. Command: "
        f"`{record['command']}`."
    )
    return f"{Table('', columns, cells).markdown()}\n{where[0].upper()}{where[1:]}\n"


def short(context: int) -> str:
    return f"{context // 1024}K" if context % 1024 == 0 else f"{context:,}"


def size(count: int) -> str:
    """Bytes in words."""
    return f"{count / 2**20:,.1f} MiB" if count >= 2**20 else f"{count / 2**10:,.0f} KiB"
