"""The gap between softmax and linear attention: who closes how much of it, which part does it, and what it takes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..experiments.experiment import Study, Variant
from ..experiments.gap import APART, CROWDED, FITTED, GAP_TASKS, HEADS, SIZED, WITHOUT, GapTask
from ..experiments.runs import Request
from ..experiments.sizes import state_bytes
from . import gap_figures
from .collect import Run
from .entries import Entry, Key, at_chance, chosen, entries, error, index, keys, no_gap, shares
from .regression_section import regression_section
from .section import Section
from .tables import Table, spread

CONTENDERS = ("delta", "gated-delta", "momentum-delta")  # linear time, no softmax layer in them
EQUAL, ABOVE = ("copy 32", "copy 64", "recall", "selective-copy"), ("text", "mnist", "cifar10")
TRACKED = ("parity", "s3")
BESIDE = ("softmax", "softmax + convolution")
NEAR = 0.02  # of parameter counts that are called equal
DIGITS = {"accuracy": 3, "loss": 4, "bits_per_byte": 3, "bits_per_dim": 3}


@dataclass(frozen=True)
class TaskResult:
    """What was run of one task, and why no share of its gap is drawn, if so."""

    task: GapTask
    found: dict[str, Entry]
    without: str

    def errors(self, name: str) -> np.ndarray:
        return error(self.found[name].scores(self.task.metric), self.task)

    def guesses(self, name: str) -> bool:
        return at_chance(self.task, self.found[name].scores(self.task.metric))

    def shares(self, name: str) -> np.ndarray:
        return shares(self.errors(name), self.errors("linear"), self.errors("softmax"))


def gap_sections(study: Study, scale: str, runs: Sequence[Run]) -> list[Section]:
    """Shares of the gap, a member taken apart, recall against the size of the state, and regression in context."""
    found = index(runs)
    made = [regression_section(scale, found)]
    if any(FITTED in settings for _, _, other, settings in found if other == scale):
        parts = [(task.experiment, variant) for task in APART for variant in WITHOUT.values()]
        sized = [("recall", variant) for variant in SIZED]
        made = [
            _showing(_shares(scale, found), study.lines, scale),
            _showing(_apart(scale, found), parts, scale),
            _showing(_states(scale, found), sized, scale),
            *made,
        ]
    return [section for section in made if section is not None]


def _showing(section: Section | None, lines: Sequence[tuple[str, Variant]], scale: str) -> Section | None:
    return None if section is None else replace(section, shows=keys(lines, scale))


def results(scale: str, found: dict[Key, dict[int, Run]]) -> list[TaskResult]:
    """Every task of which softmax and linear attention were run."""
    made = []
    for task in GAP_TASKS:
        those = entries(task.experiment, task.variants(), scale, found)
        if {"softmax", "linear"} <= those.keys():
            ends = (those[name].scores(task.metric) for name in ("linear", "softmax"))
            made.append(TaskResult(task, those, no_gap(task, *ends)))
    return made


def _shares(scale: str, found: dict[Key, dict[int, Run]]) -> Section | None:
    made = results(scale, found)
    drawn = [result for result in made if not result.without]
    if not drawn:
        return None
    tables = [_task_table(result) for result in made]
    intro = (
        f"Scale {scale}. The share of the gap that a model closes is (linear - model) / (linear - softmax): 0 is "
        "linear attention, 1 is softmax attention, beyond 1 is better than softmax. Every seed is a hollow dot, their "
        "mean a full one; what lies outside the axis is an arrow at its edge, with the mean; a grey cross is a model "
        "at chance, which has learned nothing there. Each model is at the learning rate that was the best on "
        "validation data, of those that were run. Not drawn, since there is no gap to close: "
        + ("; ".join(f"{result.task.label} ({result.without})" for result in made if result.without) or "none")
        + "."
    )
    return Section(
        f"gap-{scale}",
        f"The gap between softmax and linear attention, scale {scale}",
        intro,
        gap_figures.share_figure([_panel(result) for result in drawn]),
        _bar_table(made, scale),
        tuple(_findings(made)),
        more=(*tables, *_costs(made)),
    )


def _panel(result: TaskResult) -> gap_figures.Panel:
    guessing = frozenset(name for name in result.found if result.guesses(name))
    return gap_figures.Panel(result.task.label, {name: result.shares(name) for name in result.found}, guessing)


def _costs(made: Sequence[TaskResult]) -> tuple[Table, ...]:
    """CPU minutes of training of every model once, and each task's share of them."""
    rows = []
    spent = {}
    for result in made:
        seconds = [entry.runs[0].cpu_seconds for entry in result.found.values()]
        counted = [one for one in seconds if one is not None]
        if counted:
            spent[result.task.label] = sum(counted) / 60, len(counted)
    whole = sum(minutes for minutes, _ in spent.values())
    for label, (minutes, runs) in spent.items():
        rows.append((label, str(runs), f"{minutes:.1f}", f"{minutes / runs:.1f}", f"{100 * minutes / whole:.0f} %"))
    columns = ("task", "runs that counted", "CPU minutes", "a run", "share")
    return (Table("What one seed of each model took, at one rate", columns, tuple(rows)),) if rows else ()


def _task_table(result: TaskResult) -> Table:
    task, digits = result.task, DIGITS[result.task.metric]
    softmax = result.found["softmax"].parameters
    rows = []
    for name, entry in result.found.items():
        share = "–" if result.without else spread(result.shares(name), 2)
        share += ", at chance" if result.guesses(name) else ""
        more = 100 * (entry.parameters / softmax - 1)
        rows.append(
            (
                name,
                f"{entry.parameters:,}",
                f"{more:+.1f} %",
                f"{entry.rate:g}",
                str(entry.tried),
                spread(entry.scores(task.metric), digits),
                *([_steps(entry)] if task.steps else []),
                share,
                str(len(entry.runs)),
            )
        )
    columns = ["model", "parameters", "to softmax", "rate", "of rates tried", task.unit]
    columns += ["steps to 90 %"] if task.steps else []
    note = f", {result.without}" if result.without else ""
    return Table(f"{task.label}{note}", (*columns, "share of the gap closed", "seeds"), tuple(rows))


def _steps(entry: Entry) -> str:
    return spread([run.steps_to(0.9) for run in entry.runs], 0)


def _bar_table(made: Sequence[TaskResult], scale: str) -> Table:
    """The bar: at least softmax on some tasks, above softmax and softmax with a convolution on others."""
    by_label = {result.task.label: result for result in made}
    columns = [label for label in (*EQUAL, *ABOVE, *TRACKED) if label in by_label]
    names = dict.fromkeys(name for result in made for name in result.found if name.split(" ")[0] in CONTENDERS)
    rows = [(name, *(meets_bar(by_label[label], name) for label in columns)) for name in names]
    title = (
        f"The bar, scale {scale}: in the mean over seeds at least softmax ({', '.join(EQUAL)}), or better than "
        f"softmax and softmax with a convolution ({', '.join((*ABOVE, *TRACKED))}), at equal parameter counts"
    )
    return Table(title, ("linear-time member", *columns), tuple(rows))


def meets_bar(result: TaskResult, name: str) -> str:
    """Yes or no, by how much of what softmax reaches, and with how many seeds."""
    if name not in result.found:
        return "not run"
    entry, ours = result.found[name], result.errors(name).mean()
    rivals = BESIDE if result.task.label in (*ABOVE, *TRACKED) else BESIDE[:1]
    if any(rival not in result.found for rival in rivals):
        return "softmax + convolution not run"
    for rival in rivals:
        if abs(entry.parameters / result.found[rival].parameters - 1) > NEAR:
            return "unequal parameters"
    best = min(result.errors(rival).mean() for rival in rivals)
    met = ours <= best if rivals == BESIDE[:1] else ours < best
    seeds = min(len(result.found[one].runs) for one in (name, *rivals))
    few = "" if seeds >= 3 else f", {seeds} seed{'s' * (seeds > 1)}"
    return f"{'yes' if met else 'no'} ({ours - best:+.4f}{few})"


def _findings(made: Sequence[TaskResult]) -> Iterator[str]:
    yield "In the table of the bar, numbers are errors minus those of the best rival: below zero is better."
    for result in made:
        if result.without:
            yield f"{result.task.label}: {result.without}, so that no share of a gap is drawn."
            continue
        others = [name for name in result.found if not (name == "linear" or name.startswith(("softmax", "hybrid")))]
        linear_time = {name: round(float(result.shares(name).mean()), 2) + 0.0 for name in others}
        if not linear_time:
            continue
        best = max(linear_time, key=lambda name: linear_time[name])
        said = f"{result.task.label}: {best} closes {linear_time[best]:.2f} of the gap, the most in linear time"
        if "momentum" in linear_time and best != "momentum":
            said += "; momentum " + (
                "is at chance" if result.guesses("momentum") else f"{linear_time['momentum']:.2f}"
            )
        yield f"{said}."


def _apart(scale: str, found: dict[Key, dict[int, Run]]) -> Section | None:
    made: list[tuple[GapTask, dict[str, Entry]]] = []
    for task in APART:
        those = {}
        for part, variant in WITHOUT.items():
            entry = chosen(task.experiment, variant, scale, found)
            if entry is not None:
                those[part] = entry
        if "nothing" in those and len(those) > 1:
            made.append((task, those))
    if not made:
        return None
    rows, findings = [], []
    for task, those in made:
        whole = error(those["nothing"].scores(task.metric), task).mean()
        worse = {}
        for part, entry in those.items():
            values = entry.scores(task.metric)
            worse[part] = error(values, task).mean() - whole
            cells = (f"{entry.parameters:,}", spread(values, DIGITS[task.metric]), f"{worse[part]:+.4f}")
            rows.append((task.label, part, *cells, task.unit, str(len(entry.runs))))
        most = max(worse, key=lambda part: worse[part])
        if most == "nothing":
            parts = ", ".join(part for part in worse if part != most)
            findings.append(f"{task.label}: without {parts} the error does not grow.")
        else:
            findings.append(f"{task.label}: the error grows most without {most}, by {worse[most]:.4f}.")
    columns = ("task", "without", "parameters", "score", "error grows by", "score is", "seeds")
    intro = (
        f"Scale {scale}. momentum-delta has every part; one is taken away at a time, and feed-forward networks take "
        "up its parameters. Without momentum it is gated-delta. All at the experiment's own learning rate. Every seed "
        "is a hollow dot."
    )
    title = f"The member with every part, taken apart, scale {scale}"
    drawn = [
        (f"{task.label}: {task.unit}", {part: entry.scores(task.metric) for part, entry in those.items()})
        for task, those in made
    ]
    table = Table(title, columns, tuple(rows))
    return Section(f"gap-apart-{scale}", title, intro, gap_figures.apart_figure(drawn), table, tuple(findings))


def _states(scale: str, found: dict[Key, dict[int, Run]]) -> Section | None:
    lines: dict[str, list[tuple[int, float]]] = {}
    rows = []
    for variant in SIZED:
        entry = chosen("recall", variant, scale, found)
        if entry is None:
            continue
        values, tokens = entry.scores("accuracy"), entry.request.config.data.length
        size = state_bytes(entry.request, tokens)
        lines.setdefault(variant.model, []).append((size, float(values.mean())))
        heads = entry.request.config.model.heads
        cells = (f"{entry.parameters:,}", f"{size:,}", spread(values, 3), str(len(entry.runs)))
        rows.append((variant.model, str(heads), *cells))
    if len(lines) < 2:
        return None
    pairs = next(setting.partition("=")[2] for setting in CROWDED if setting.startswith("data.pairs"))
    title = f"Recall of {pairs} pairs against the size of the state, scale {scale}"
    intro = (
        f"Scale {scale}. What a model keeps of one sequence at its end, in bytes, all layers together: a state that "
        f"stays as it is, or softmax's cache, which grows with every token. {len(HEADS)} numbers of heads: fewer "
        "heads have larger states. At the experiment's own learning rate."
    )
    best = {model: max(accuracy for _, accuracy in points) for model, points in lines.items()}
    most = max((model for model in best if model != "softmax"), key=lambda model: best[model], default=None)
    findings = () if most is None else (f"The best state of fixed size is that of {most}: accuracy {best[most]:.3f}.",)
    columns = ("model", "heads", "parameters", "bytes kept a sequence", "accuracy", "seeds")
    growth = _cache_growth(scale)
    figure = gap_figures.state_figure(lines, growth)
    return Section(f"gap-state-{scale}", title, intro, figure, Table(title, columns, tuple(rows)), findings)


def _cache_growth(scale: str) -> tuple[tuple[int, int], ...]:
    """Softmax's cache at the start, the middle and the end of the sequence."""
    request = Request("recall", "softmax", scale, 0, CROWDED)
    length = request.config.data.length
    return tuple((tokens, state_bytes(request, tokens)) for tokens in (length // 8, length // 2, length))
