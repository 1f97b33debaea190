"""Language models of text: what each scores on the last tenth, in every unit, and how it came there."""

from collections.abc import Iterator
from dataclasses import replace

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from ..experiments import REPRODUCTIONS
from ..experiments.gap import CONVOLVED, UNDECAYED
from ..experiments.sizes import parameter_count
from . import figures
from .collect import last_text
from .groups import Group
from .section import Section, separated
from .tables import Table, spread

FIRST = 1  # evaluations that are not drawn: before the first step
NANOGPT = 1.88  # nats a character: what its README publishes for the setting that scale small is
CHANGED = {CONVOLVED: "with convolution", UNDECAYED: "without decay"}
CLAIMS = (
    ("momentum", "linear", "Momentum attention writes better than linear attention"),
    ("gated-delta", "softmax with convolution", "The gated delta rule writes better than softmax with convolution"),
    ("momentum-delta", "gated-delta", "Momentum on top of the gated delta rule writes better still"),
)


def text_section(found: list[Group], scale: str, title: str) -> Section | None:
    """None while no run has been scored on the test split."""
    named = (replace(group, label=_name(group.model, group.settings)) for group in found)
    scored = [group for group in named if len(group.test("perplexity"))]
    if not scored:
        return None
    config = scored[0].runs[0].config
    intro = (
        f"Scale {scale}: {config.model.depth} layers of width {config.model.width}, {config.model.heads} heads, "
        f"context {config.data.context}, {config.train.steps} steps of {config.train.batch_size} windows. Scored on "
        "the whole last tenth of the text by the checkpoint that was best on the first 3 % of the text. Of the "
        "learning rates that were tried, validation text chose one."
    )
    if not _timed(scored):
        intro += " The runs are of several processors, so that their times are left out."
    name = f"{title}, scale {scale}"
    return Section(
        f"text-{scale}",
        name,
        intro,
        _figure(scored),
        _table(name, scored, scale),
        tuple(_findings(scored, scale)),
        texts=tuple((group.label, text) for group in scored if (text := last_text(group.runs[0]))),
    )


def _table(title: str, scored: list[Group], scale: str) -> Table:
    """A row a model, and at nanoGPT's setting what nanoGPT publishes."""
    rows = [
        (
            group.label,
            f"{parameter_count(group.runs[0].request):,}",
            f"{group.runs[0].config.train.learning_rate:g}",
            str(group.tried),
            spread(group.test("nats_per_character"), 3),
            spread(group.stacked("nats_per_character").min(1), 3),
            spread(group.test("bits_per_byte"), 3),
            spread(group.test("perplexity"), 2),
            group.cpu_seconds(group.runs[0].config.train.steps / 60, 1) if _timed(scored) else "–",
            str(group.seeds),
        )
        for group in scored
    ]
    if scale == "small":
        rows.append(("nanoGPT, as published", "–", "–", "–", f"{NANOGPT}", *"–––––"))
    columns = ("model", "parameters", "rate", "of rates tried", "nats a character", "on validation text")
    return Table(title, (*columns, "bits a byte", "perplexity", "CPU minutes", "seeds"), tuple(rows))


def _timed(found: list[Group]) -> bool:
    """Whether one processor has trained all of them, so that their times can be compared."""
    return len(set[str | None]().union(*(group.processors() for group in found))) == 1


def _findings(scored: list[Group], scale: str) -> Iterator[str]:
    nats = {group.label: group.test("nats_per_character") for group in scored}
    linear_time = [name for name in nats if not name.startswith(("softmax", "hybrid"))]
    if linear_time and "softmax" in nats:
        best = min(linear_time, key=lambda name: float(nats[name].mean()))
        compared = f"The best model in linear time, {best}, writes better than softmax attention"
        yield f"{compared}: {separated(nats[best], nats['softmax'])}."
    for better, worse, text in CLAIMS:
        if better in nats and worse in nats:
            yield f"{text}: {separated(nats[better], nats[worse])}."
    if scale == "small":
        below = [name for name, values in nats.items() if values.max() < NANOGPT]
        yield f"Below the {NANOGPT} that nanoGPT publishes, with every seed: {', '.join(below) or 'none'}."
    tried = {group.label: group.tried for group in scored}
    every = {_name(variant.model, variant.settings): len(variant.rates) for variant in REPRODUCTIONS["text"].variants}
    if missing := [name for name in every if name not in nats]:
        yield f"The study is under way. Not run yet: {', '.join(missing)}."
    elif any(tried[name] < rates for name, rates in every.items()):
        yield "The study is under way: not every learning rate was tried with every model."


def _name(model: str, settings: tuple[str, ...]) -> str:
    """The name of a line of the study, without its budget of parameters, which the table shows."""
    words = [text for setting, text in CHANGED.items() if setting in settings]
    return " ".join([model, *words])


def _figure(found: list[Group]) -> Figure:
    with plt.rc_context(figures.STYLE):
        panels = ["step", *["cpu_seconds"] * (figures.counted(found) and _timed(found))]
        figure, axes = plt.subplots(1, len(panels), figsize=(4.6 * len(panels), 3.6), squeeze=False)
        for across, axis in zip(panels, axes[0], strict=True):
            for group in found:
                named = replace(group, label=_name(group.model, group.settings))
                hollow = not CHANGED.keys().isdisjoint(group.settings)
                figures.plot_curve(axis, named, across, "nats_per_character", skip=FIRST, hollow=hollow)
            axis.set_xlabel(figures.ACROSS[across])
            axis.set_ylabel("validation (nats a character)")
        handles, labels = axes[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure
