"""Time and memory against length, as `bench/lra_speed.py` measured them, where its file lies among the runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from ..bounded import MEGABYTE, parse_json, read_bounded
from ..experiments.named_models import ALL_MODELS
from ..training.run_directory import RunError
from .figures import COLOURS, DASHES, MARKERS, STYLE
from .section import Section
from .tables import Table

FILE = "lra.json"


def efficiency_sections(paths: Sequence[Path]) -> list[Section]:
    """A section for the first such file at the top of one of the paths; none where there is none."""
    for path in paths:
        file = path / FILE
        if file.is_file():
            try:
                return [_section(parse_json(read_bounded(file, MEGABYTE)))]
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise RunError(f"{file} is not what bench/lra_speed.py writes: {error!r}") from None
    return []


def _section(result: dict[str, Any]) -> Section:
    rows = {(row["model"], row["length"]): row for row in result["lengths"]}
    models = [model for model in ALL_MODELS if any(model == key for key, _ in rows)]
    lengths = sorted({length for _, length in rows})
    machine, listops = result["machine"], result["listops"]
    step, share = listops["seconds_per_step"], listops["share_of_a_momentum_step_spent_on_its_batch"]
    title = "Long Range Arena: time and memory against length"
    intro = (
        f"Training at the paper's size: {result['shape']}, on {machine['threads']} threads ({machine['cpu']}, torch "
        f"{machine['torch']}). Command: {result['command']}. Memory is the peak beyond what the model takes at rest."
    )
    findings = [
        f"A step of ListOps at scale paper (batch {listops['batch']}) takes momentum attention "
        f"{step['momentum']:.2f} s and softmax {step['softmax']:.2f} s: "
        f"{listops['softmax_over_momentum']:.1f} times as long.",
        f"Making the batch is {100 * share:.2f} % of a momentum step.",
    ]
    for model in ("momentum", "softmax"):
        if model in models:
            first, last = (rows[model, length]["peak_extra_bytes"] for length in (lengths[0], lengths[-1]))
            findings.append(
                f"From {lengths[0]:,} to {lengths[-1]:,} tokens, {lengths[-1] / lengths[0]:g} times as many, the "
                f"memory of {model} grows {last / first:.1f} times."
            )
    return Section(
        "lra-efficiency", title, intro, _figure(rows, models, lengths), _table(rows, models, lengths), tuple(findings)
    )


def _table(rows: dict[tuple[str, int], dict[str, Any]], models: list[str], lengths: list[int]) -> Table:
    columns = ["model", *(f"{n:,}: s" for n in lengths), *(f"{n:,}: MB" for n in lengths)]
    lines = []
    for model in models:
        times = [f"{rows[model, n]['seconds_per_1000_steps']:,.0f}" for n in lengths]
        memory = [f"{rows[model, n]['peak_extra_bytes'] / MEGABYTE:,.0f}" for n in lengths]
        lines.append((model, *times, *memory))
    return Table("Seconds per 1,000 steps and peak memory, by length", tuple(columns), tuple(lines))


def _figure(rows: dict[tuple[str, int], dict[str, Any]], models: list[str], lengths: list[int]) -> Figure:
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, 2, figsize=(9, 3.4))
        for axis, key, unit in (
            (axes[0], "seconds_per_1000_steps", 1),
            (axes[1], "peak_extra_bytes", MEGABYTE),
        ):
            for model in models:
                values = [rows[model, n][key] / unit for n in lengths]
                colour, dash, marker = COLOURS[model], DASHES[model], MARKERS[model]
                axis.plot(lengths, values, color=colour, ls=dash, marker=marker, ms=4, lw=1.4, label=model)
            axis.set_xscale("log", base=2)
            axis.set_yscale("log")
            axis.set_xticks(lengths, [f"{n:,}" for n in lengths])
            axis.set_xlabel("length (tokens)")
        axes[0].set_ylabel("seconds per 1,000 steps")
        axes[1].set_ylabel("peak memory (MB)")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return figure
