"""`momentum list`: every experiment and study in a line, and one of them in full."""

from rich.console import Console
from rich.table import Column, Table

from ..experiments import EXPERIMENTS, REPRODUCTIONS
from ..experiments.configuration import nearest
from ..experiments.experiment import SCALES, Experiment, Study
from ..experiments.runs import settings_of


def show_all(console: Console) -> None:
    """A line for each."""
    table = _table(Column("experiment", no_wrap=True), Column("what", overflow="fold"), "small")
    for experiment in EXPERIMENTS.values():
        table.add_row(experiment.name, experiment.title, experiment.minutes.get("small", "–"))
    console.print(table)
    console.print()
    table = _table(Column("reproduce", no_wrap=True), Column("what", overflow="fold"), "runs")
    for study in REPRODUCTIONS.values():
        table.add_row(study.name, study.title, str(len(study.lines)))
    console.print(table)
    console.print()
    console.print("small: one model on two CPU cores. momentum list NAME shows models, scales and settings.")


def show_one(name: str, console: Console) -> None:
    """An experiment with its models, scales and settings; a study with its runs."""
    if name not in {**EXPERIMENTS, **REPRODUCTIONS}:
        raise nearest("experiment or study", name, list({**EXPERIMENTS, **REPRODUCTIONS}))
    if name in EXPERIMENTS:
        _experiment(EXPERIMENTS[name], console)
    if name in REPRODUCTIONS:
        _study(REPRODUCTIONS[name], console)


def _experiment(experiment: Experiment, console: Console) -> None:
    console.print(f"momentum train {experiment.name}: {experiment.title}\n")
    rows = _table("", Column("", overflow="fold"), header=False)
    rows.add_row("models", ", ".join(experiment.models))
    for scale in SCALES:
        rows.add_row(scale, experiment.minutes.get(scale, "–"))
    settings = sorted(settings_of(experiment.name, "small").items(), key=lambda item: not item[0].startswith("model."))
    rows.add_row("--set", " ".join(f"{path}={value}" for path, value in settings))
    console.print(rows)
    console.print("times of one model on two CPU cores; settings as the first that has them, at small\n")


def _study(study: Study, console: Console) -> None:
    console.print(f"momentum reproduce {study.name}: {study.title}\n")
    lines = list(dict.fromkeys(" ".join((name, v.model, *v.settings)) for name, v in study.lines))
    console.print("\n".join(lines))
    console.print(f"\n{len(study.lines)} runs per seed, those at other learning rates not counted")


def _table(*columns: Column | str, header: bool = True) -> Table:
    return Table(*columns, show_header=header, box=None, padding=(0, 2, 0, 0), pad_edge=False)
