"""What finished runs and measurements say of a claim: each function is one kind of evidence."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..experiments.lra.lra_scales import PAPER_TABLE
from ..experiments.lra.lra_scales import TASKS as ARENA
from .collect import Run
from .comparisons import CLEAR, LOSS, Comparison, Verdict, compare, verdict_of
from .tables import Table, spread

MUCH = 10.0  # times: what may be called much faster
FAR = 10.0  # points of accuracy: what may be called far behind
COLUMNS = ("experiment, scale", "score", "first", "second", "seeds", "first is better")


@dataclass(frozen=True)
class Evidence:
    verdict: Verdict
    why: str
    table: Table | None = None


Judge = Callable[[Sequence[Run], Path], Evidence]


def compared(*pairs: tuple[str, str], **only: Any) -> Judge:
    """Evidence of a claim that one model is better than another, wherever both were run."""

    def judge(runs: Sequence[Run], results: Path) -> Evidence:
        rows: list[tuple[str, ...]] = []
        found: list[Comparison] = []
        for better, worse in pairs:
            here = compare(runs, better, worse, **only)
            rows += [(f"{better} / {worse}", *comparison.cells()) for comparison in here]
            found += here
        verdict, why = verdict_of(found)
        return Evidence(verdict, why, Table("", ("first / second", *COLUMNS), tuple(rows)) if rows else None)

    return judge


def _swept(runs: Sequence[Run], model: str, setting: str) -> dict[float, np.ndarray]:
    """Final losses on the copy task at scale small, by the value of one setting."""
    found: dict[float, list[float]] = {}
    for run in runs:
        request = run.request
        asked = (request.experiment, request.model, request.scale) == ("copy", model, "small")
        if asked and len(request.settings) == 1 and request.settings[0].startswith(f"{setting}="):
            found.setdefault(float(request.settings[0].partition("=")[2]), []).append(run.final("loss"))
    return {value: np.array(found[value]) for value in sorted(found)}


def _sweep_table(swept: dict[float, np.ndarray]) -> Table | None:
    rows = tuple((f"{value:g}", spread(losses, 4), str(len(losses))) for value, losses in swept.items())
    return Table("", ("value", "final loss on copy, small", "seeds"), rows) if rows else None


def smaller_beta(runs: Sequence[Run], results: Path) -> Evidence:
    swept = _swept(runs, "adaptive-momentum", "model.beta")
    middle = 0.5
    pairs = [
        Comparison(f"{low:g} against {high:g}", LOSS, swept[low], swept[high])
        for low in swept
        for high in swept
        if 0 < low < middle < high
    ]
    verdict, why = verdict_of(pairs)
    return Evidence(verdict, f"every β below {middle:g} against every one above: {why}", _sweep_table(swept))


def connection_beta(runs: Sequence[Run], results: Path) -> Evidence:
    swept = _swept(runs, "momentum-connection", "model.connection_beta")
    if not {0.01, 0.99} <= swept.keys():
        return Evidence("not decided", "there are no runs of both yet")
    pair = Comparison("", LOSS, swept[0.01], swept[0.99])
    best = min(swept, key=lambda value: swept[value].mean())
    said = f"is 0.01 better than 0.99: {pair.verdict}; the lowest mean loss is at {best:g}"
    decided: Verdict = "yes" if pair.verdict == CLEAR else "no" if pair.verdict == "clearly not" else "not decided"
    return Evidence(decided, said, _sweep_table(swept))


def listops(runs: Sequence[Run], results: Path) -> Evidence:
    rows: list[tuple[str, ...]] = []
    means: dict[tuple[str, str, str], list[float]] = {}
    for run in sorted(runs, key=lambda run: (run.request.scale, run.request.settings)):
        request = run.request
        if request.experiment == "lra-listops" and "accuracy" in run.test and request.model in PAPER_TABLE:
            key = request.scale, ", ".join(request.settings), request.model
            means.setdefault(key, []).append(100 * run.test["accuracy"])
    for (scale, settings, model), values in means.items():
        paper = PAPER_TABLE[model][list(ARENA).index("lra-listops")]
        rows.append((model, scale, settings, spread(values, 2), str(len(values)), f"{paper:.2f}"))
    table = Table("", ("model", "scale", "settings", "test accuracy in %", "seeds", "paper"), tuple(rows))
    finished = next((scale for scale in ("paper", "small") if _ends(means, scale)), None)
    if finished is None:
        return Evidence("not decided", "there are no runs of both yet", table if rows else None)
    softmax, linear = _ends(means, finished)
    said = f"at scale {finished} softmax is {softmax - linear:+.2f} points ahead of linear attention"
    if finished != "paper":  # the claim is about that scale
        return Evidence("not decided", f"{said}; at scale paper no pair of runs is finished", table)
    return Evidence("yes" if softmax - linear >= FAR else "no", said, table)


def _ends(means: dict[tuple[str, str, str], list[float]], scale: str) -> tuple[float, ...]:
    """Mean accuracy of softmax and of linear attention, where both were run."""
    both = [means.get((scale, "", model), []) for model in ("softmax", "linear")]
    return tuple(float(np.mean(values)) for values in both) if all(both) else ()


def generation(runs: Sequence[Run], results: Path) -> Evidence:
    record = _read(results / "generation.json")
    if record is None:
        return Evidence("not decided", "not measured yet")
    best: dict[tuple[str, str], float] = {}
    for row in record["rows"]:
        if row["method"] in ("recurrent", "cache", "recompute"):
            place = row["model"], row["method"]
            best[place] = max(best.get(place, 0.0), row["images_per_second"])
    rows = tuple((model, method, f"{speed:.3g}") for (model, method), speed in best.items())
    ours = best["momentum", "recurrent"]
    cached, recomputed = (ours / best["softmax", method] for method in ("cache", "recompute"))
    said = (
        f"momentum draws {recomputed:.3g} times as many images as softmax that recomputes its prefix, as in the "
        f"paper's table, and {cached:.3g} times as many as softmax with a key-value cache, each at its best batch"
    )
    verdict: Verdict = "yes" if cached >= MUCH else "only with" if recomputed >= MUCH else "no"
    return Evidence(verdict, said, Table("", ("model", "how", "images/s"), rows))


def translation(runs: Sequence[Run], results: Path) -> Evidence:
    record = _read(results / "translation.json")
    if record is None:
        return Evidence("not decided", "not measured yet")
    speeds = {(row["model"], row["batch"], row["length"]): row["tokens_per_second"] for row in record["rows"]}
    rows, ratios = [], []
    for model, batch, length in speeds:
        if model == "momentum" and ("softmax", batch, length) in speeds:
            ratio = speeds["momentum", batch, length] / speeds["softmax", batch, length]
            ratios.append((ratio, batch, length))
            rows.append((f"{batch}", f"{length}", f"{ratio:.2f}"))
    low, high = min(ratios), max(ratios)
    said = (
        f"momentum's tokens per second are {low[0]:.2f} to {high[0]:.2f} times those of softmax, the most at "
        f"{high[2]} tokens; the paper's own table has softmax ahead"
    )
    verdict: Verdict = "yes" if low[0] > 1 else "only with" if high[0] > 1 else "no"
    return Evidence(verdict, said, Table("", ("sentences", "tokens", "momentum ÷ softmax"), tuple(rows)))


def linear_time(runs: Sequence[Run], results: Path) -> Evidence:
    record = _read(results / "attention.json")
    if record is None:
        return Evidence("not decided", "not measured yet")
    rows = [row for row in record["lengths"] if row["attention"] == "momentum"]
    ratios = [row["ratio_to_half_length"] for row in rows if row["ratio_to_half_length"] is not None]
    said = (
        f"twice the length takes {min(ratios):.2f} to {max(ratios):.2f} times as long, up to {rows[-1]['n']:,} tokens"
    )
    return Evidence("yes" if max(ratios) < 3 else "no", said)


def closed_form(runs: Sequence[Run], results: Path) -> Evidence:
    trained = sum(run.request.model == "gated-momentum" for run in runs)
    said = (
        "the chunked form needs products of β, not powers: with one β and γ a token it is still linear in time and "
        "exact (`tests/ops/test_family.py`); gated-momentum learns both from x, "
        f"and {trained} finished runs train it that way"
    )
    return Evidence("no", said)


def _read(path: Path) -> dict[str, Any] | None:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
