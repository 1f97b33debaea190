"""The section of a picture experiment: bits/dim, the paper's table beside ours, images per second, samples."""

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..experiments.pictures.picture_scales import PAPER_TABLES
from .figures import ACROSS, COLOURS, STYLE, counted, plot_curve
from .groups import Group
from .section import Section, separated
from .tables import Table, spread

METHODS = {"recurrent": "recurrent", "cache": "key-value cache", "recompute": "prefix recomputed"}
CLAIMS = (
    ("momentum", "linear", "Momentum attention has fewer bits/dim than linear attention"),
    ("momentum-connection", "momentum", "The momentum connection has fewer bits/dim than momentum attention alone"),
    ("adaptive-momentum", "momentum-connection", "Adaptive momentum has fewer bits/dim than the tuned connection"),
    ("adaptive-momentum", "softmax", "Adaptive momentum has fewer bits/dim than softmax"),
)


def picture_section(found: list[Group], scale: str, title: str) -> Section:
    images = found[0].runs[0].request.experiment
    tested = {group.model: group.test("bits_per_dim") for group in found}
    findings = [
        f"{text}: {separated(tested[better], tested[worse])}."
        for better, worse, text in CLAIMS
        if len(tested.get(better, ())) and len(tested.get(worse, ()))
    ]
    findings += _speed_findings(found)
    return Section(
        f"{images}-{scale}",
        f"{title}, scale {scale}",
        _intro(found, images, scale),
        _figure(found),
        _table(found, images, f"{title}, scale {scale}"),
        tuple(findings),
        tuple((group.label, group.runs[0].samples) for group in found if group.runs[0].samples is not None),
    )


def best_throughput(group: Group) -> dict[str, dict[str, Any]]:
    """For each way to draw, the measurement with the most images per second."""
    best: dict[str, dict[str, Any]] = {}
    for line in (line for run in group.runs for line in run.throughput):
        method = line["method"]
        if method not in best or line["images_per_second"] > best[method]["images_per_second"]:
            best[method] = line
    return best


def _table(found: list[Group], images: str, title: str) -> Table:
    """One row a model, and one more for each further way to draw with it."""
    paper = PAPER_TABLES.get(images, {})
    measured = any(best_throughput(group) for group in found)
    columns = ["model", "test bits/dim", "first byte not scored"]
    columns += ["paper: bits/dim"] if paper else []
    columns += ["images/s", "at batch", "bytes kept an image"] if measured else []
    columns += ["paper: images/s"] if paper else []
    columns += ["CPU s per 100 steps", "seeds"]
    rows = []
    for group in found:
        speeds = best_throughput(group)
        lines = [speeds[method] for method in METHODS if method in speeds]
        scores = [group.test(name) for name in ("bits_per_dim", "bits_per_dim_paper")]
        row = [group.label, *(spread(values, 3) if len(values) else "not scored" for values in scores)]
        row += [f"{paper[group.model][0]:.2f}"] if paper else []
        row += _speed(lines[0] if lines else None) if measured else []
        # the paper's softmax recomputes the prefix
        paper_speed = [f"{paper[group.model][1]:g}"] if paper else []
        recomputed = any(line["method"] == "recompute" for line in lines[1:])
        row += [""] * len(paper_speed) if recomputed else paper_speed
        row += [group.cpu_seconds(100, 2), str(group.seeds)]
        rows.append(tuple(row))
        for line in lines[1:]:
            label = f"{group.label}, {_method(line)}"
            row = [label, "", "", *([""] if paper else []), *_speed(line), *paper_speed, "", ""]
            rows.append(tuple(row))
    return Table(title, tuple(columns), tuple(rows))


def _method(line: dict[str, Any]) -> str:
    return METHODS.get(line["method"], line["method"])


def _speed(line: dict[str, Any] | None) -> list[str]:
    if line is None:
        return ["", "", ""]
    return [f"{line['images_per_second']:.3g}", str(line["batch"]), f"{line['bytes_per_image']:,}"]


def _speed_findings(found: list[Group]) -> list[str]:
    speeds = {group.model: best_throughput(group) for group in found}
    softmax = speeds.get("softmax", {})
    findings = []
    for model, lines in speeds.items():
        if model == "softmax" or "recurrent" not in lines:
            continue
        ours = lines["recurrent"]["images_per_second"]
        ratios = [
            f"{ours / softmax[method]['images_per_second']:.3g} × softmax with {words}"
            for method, words in (("cache", "a key-value cache"), ("recompute", "the prefix recomputed"))
            if method in softmax
        ]
        if ratios:
            findings.append(f"{model} draws {' and '.join(ratios)}, images per second at the best batch of each.")
    return findings


def _intro(found: list[Group], images: str, scale: str) -> str:
    run = found[0].runs[0]
    config = run.config
    height, width, channels = config.data.shape(images)
    pool = config.data.pool
    size = f"{height} × {width}" + (" × 3" if channels == 3 else "")
    if pool > 1:
        size += f" (averaged down from {height * pool} × {width * pool})"
    notes = sorted({str(note) for g in found for r in g.runs if (note := r.provenance.get("data", {}).get("note"))})
    text = (
        f"Scale {scale}: pictures of {size} bytes, width {config.model.width}, {config.model.depth} layers, "
        f"{config.train.steps:,} steps of {config.train.batch_size} pictures. The test split is scored once, by the "
        "checkpoint that was best on held-out training images; curves are of those. Lines are means over seeds, bands "
        "go from the lowest to the highest."
    )
    if notes:
        text += f" The data is {'; '.join(notes)}."
    if images in PAPER_TABLES and scale != "paper":
        text += (
            " The paper's models are larger, see the images at full size and train far longer: compare its numbers "
            "with each other, not with ours."
        )
    return text


def _figure(found: Sequence[Group]) -> Figure:
    """Validation bits/dim against steps and CPU seconds, and bars of images per second, where they were measured."""
    bars = [(group, line) for group in found for _, line in sorted(best_throughput(group).items())]
    with plt.rc_context(STYLE):
        across_what = ("step", *["cpu_seconds"] * counted(found))
        figure, grid = plt.subplots(1, len(across_what) + bool(bars), figsize=(11, 3.4), squeeze=False)
        axes = grid[0]
        for across, axis in zip(across_what, axes, strict=False):
            for group in found:
                plot_curve(axis, group, across, "bits_per_dim", skip=1)
            axis.set_xlabel(ACROSS[across])
            axis.set_ylabel("validation bits/dim")
        if bars:
            _bars(axes[-1], bars)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def _bars(axis: Axes, bars: Sequence[tuple[Group, dict[str, Any]]]) -> None:
    places = np.arange(len(bars))[::-1]
    speeds = [line["images_per_second"] for _, line in bars]
    drawn = axis.barh(
        places,
        speeds,
        color=[COLOURS[group.model] for group, _ in bars],
        hatch=["///" if line["method"] == "recompute" else "" for _, line in bars],
        edgecolor="white",
    )
    axis.bar_label(drawn, fmt="{:.3g}", padding=3)
    axis.set_xscale("log")
    axis.set_xlim(min(speeds) / 3, max(speeds) * 5)
    axis.set_axisbelow(True)
    names = [
        group.label if line["method"] == "recurrent" else f"{group.label},\n{_method(line)}" for group, line in bars
    ]
    axis.set_yticks(places, names)
    axis.set_xlabel("images per second, best batch")
