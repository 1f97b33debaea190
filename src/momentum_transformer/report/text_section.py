"""Language models of text: what each scores on the last tenth, in every unit, and how it came there."""

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from ..experiments import REPRODUCTIONS
from ..experiments.gap import CONVOLVED
from ..experiments.sizes import parameter_count
from . import figures
from .collect import last_text
from .groups import Group
from .section import Section, separated
from .tables import Table, spread

FIRST = 1  # evaluations that are not drawn: before the first step


def text_section(found: list[Group], scale: str, title: str) -> Section | None:
    """None while no run has been scored on the test split."""
    scored = [group for group in found if len(group.test("perplexity"))]
    if not scored:
        return None
    rows = tuple(
        (
            _name(group.model, group.settings),
            f"{parameter_count(group.runs[0].request):,}",
            spread(group.test("nats_per_character"), 3),
            spread(group.test("bits_per_byte"), 3),
            spread(group.test("perplexity"), 2),
            group.cpu_seconds(group.runs[0].config.train.steps / 60, 1),
            str(group.seeds),
        )
        for group in scored
    )
    columns = ("model", "parameters", "nats a character", "bits a byte", "perplexity", "CPU minutes", "seeds")
    nats = {_name(group.model, group.settings): group.test("nats_per_character") for group in scored}
    claims = (
        ("momentum", "linear", "Momentum attention writes better than linear attention"),
        ("gated-delta", "softmax", "The gated delta rule writes better than softmax attention"),
        ("gated-delta", "softmax with convolution", "Also where softmax attention has the short convolution"),
        ("momentum-delta", "gated-delta", "Momentum on top of the gated delta rule writes better still"),
    )
    findings = [
        f"{text}: {separated(nats[better], nats[worse])}."
        for better, worse, text in claims
        if better in nats and worse in nats
    ]
    every = [_name(variant.model, variant.settings) for variant in REPRODUCTIONS["text"].variants]
    if missing := [name for name in every if name not in nats]:
        findings.append(f"Not run yet: {', '.join(missing)}.")
    config = scored[0].runs[0].config
    intro = (
        f"Scale {scale}: {config.model.depth} layers of width {config.model.width}, {config.model.heads} heads, "
        f"context {config.data.context}, {config.train.steps} steps of {config.train.batch_size} windows. Scored on "
        "the whole last tenth of the text by the checkpoint that was best on other text."
    )
    name = f"{title}, scale {scale}"
    return Section(
        f"text-{scale}",
        name,
        intro,
        _figure(scored),
        Table(name, columns, rows),
        tuple(findings),
        texts=tuple(
            (_name(group.model, group.settings), text) for group in scored if (text := last_text(group.runs[0]))
        ),
    )


def _name(model: str, settings: tuple[str, ...]) -> str:
    """A line of the study; that its parameters are those of softmax, the column of parameters says."""
    return f"{model} with convolution" if CONVOLVED in settings else model


def _figure(found: list[Group]) -> Figure:
    with plt.rc_context(figures.STYLE):
        panels = ["step", *["cpu_seconds"] * figures.counted(found)]
        figure, axes = plt.subplots(1, len(panels), figsize=(4.6 * len(panels), 3.6), squeeze=False)
        for across, axis in zip(panels, axes[0], strict=True):
            for group in found:
                figures.plot_curve(axis, group, across, "nats_per_character", skip=FIRST)
            axis.set_xlabel(figures.ACROSS[across])
            axis.set_ylabel("validation (nats a character)")
        handles, labels = axes[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure
