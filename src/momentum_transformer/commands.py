"""What each command of the `momentum` line does."""

import os
import shlex
from functools import singledispatch
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from . import cli
from .bench.shapes import BenchError
from .data.folder import DataError
from .experiments import EXPERIMENTS, REPRODUCTIONS
from .experiments.configuration import ConfigurationError, as_word, nearest
from .experiments.drawing import generate_pictures
from .experiments.experiment import SCALES, Study
from .experiments.predicting import predict_labels
from .experiments.queue import run_queue
from .experiments.queue_state import show_queue
from .experiments.reproduce import run_study
from .experiments.runs import Request, run_evaluation, run_training
from .experiments.shipped import shipped_run
from .experiments.translating import translate_text
from .generation.grids import PictureError
from .generation.translation_scores import ScoreError
from .install import install_hint
from .training.allocator import keep_freed_memory
from .training.checkpoint import CheckpointError
from .training.loop import TrainingError
from .training.run_directory import RunError
from .web import ServeError

USER_ERRORS = (
    BenchError,
    ConfigurationError,
    CheckpointError,
    DataError,
    PictureError,
    RunError,
    ScoreError,
    ServeError,
    TrainingError,
)
CONSOLE = Console(highlight=False)


@singledispatch
def run_command(command: Any) -> int:
    """Run a command; returns the exit code."""
    raise NotImplementedError(type(command).__name__)


@run_command.register
def _(command: cli.List) -> int:
    if command.queue:
        show_queue(
            _study(command.study),
            scale=command.scale,
            seeds=command.seeds,
            runs=command.runs,
            results=command.results,
            console=CONSOLE,
        )
        return 0
    first = Column("experiment", overflow="fold", width=max(map(len, EXPERIMENTS)))
    columns = (first, Column("models", no_wrap=True), *SCALES)
    table = Table(*columns, title="What one model takes on two CPU cores", padding=(0, 1, 0, 0), show_lines=True)
    for experiment in EXPERIMENTS.values():
        minutes = (experiment.minutes.get(scale, "–") for scale in SCALES)
        table.add_row(f"{experiment.name}\n{experiment.title}", "\n".join(experiment.models), *minutes)
    CONSOLE.print(table)
    table = Table(Column("momentum reproduce …", no_wrap=True), "what", "runs per seed")
    for study in REPRODUCTIONS.values():
        table.add_row(study.name, study.title, str(len(study.lines)))
    CONSOLE.print(table)
    return 0


def _study(name: str) -> Study:
    if name not in REPRODUCTIONS:
        raise nearest("study", name, list(REPRODUCTIONS))
    return REPRODUCTIONS[name]


@run_command.register
def _(command: cli.Train) -> int:
    request = Request(command.experiment, command.model, command.scale, command.seed, _settings(command))
    out = command.out or request.directory(command.runs)
    keep_freed_memory()
    if find_spec("tensorboard") is None:
        CONSOLE.print("tensorboard is not installed: metrics go to metrics.jsonl only")
    if run_training(request, out, resume=command.resume, data_dir=command.data_dir):
        CONSOLE.print(f"finished: {out}", soft_wrap=True)
        return 0
    words = ["momentum train", request.experiment, "--model", request.model, "--scale", request.scale]
    words += [
        "--seed",
        str(request.seed),
        *(f"--set {shlex.quote(setting)}" for setting in request.settings),
        "--out",
        str(out),
    ]
    words += [] if command.data_dir is None else ["--data-dir", str(command.data_dir)]
    CONSOLE.print(f"interrupted; everything is saved. Carry on with: {' '.join(words)} --resume", soft_wrap=True)
    return 130


def _settings(command: cli.Train | cli.Reproduce) -> tuple[str, ...]:
    """--fidelity, --source and others are settings with flags of their own."""
    flags = [] if command.fidelity == "paper" else [f"fidelity={command.fidelity}"]
    if isinstance(command, cli.Train):
        given: dict[str, Path | str | None] = {"source": command.source, "target": command.target}
        given |= {"text_column": command.text_column, "label_column": command.label_column}
        flags += [f"data.{name}={as_word(str(value))}" for name, value in given.items() if value is not None]
    return (*command.settings, *flags)


@run_command.register
def _(command: cli.Evaluate) -> int:
    if command.checkpoint not in ("best", "last"):
        raise nearest("checkpoint", command.checkpoint, ("best", "last"))
    keep_freed_memory()
    metrics = run_evaluation(command.run, command.checkpoint, split=command.split, data_dir=command.data_dir)
    for name, value in metrics.items():
        CONSOLE.print(f"{name}: {value:.6f}")
    return 0


@run_command.register
def _(command: cli.Generate) -> int:
    run = command.run or shipped_run()
    if run is None:
        raise RunError(
            "this package comes without a model; make one: momentum train digits, then: momentum generate RUN"
        )
    generate_pictures(
        run,
        count=command.count,
        temperature=command.temperature,
        seed=command.seed,
        offset=command.offset,
        out=command.out or (command.run / "samples" / "grid.png" if command.run else Path("grid.png")),
        gif=command.gif,
        singles=command.singles,
        checkpoint=command.checkpoint,
        data_dir=command.data_dir,
        console=CONSOLE,
    )
    return 0


@run_command.register
def _(command: cli.Translate) -> int:
    keep_freed_memory()
    translate_text(
        command.run,
        text=command.text,
        out=command.out,
        refinements=command.refine,
        until_fixed=command.until_fixed,
        show_steps=command.show_steps,
        batch=command.batch,
        checkpoint=command.checkpoint,
    )
    return 0


@run_command.register
def _(command: cli.Predict) -> int:
    predict_labels(
        command.run,
        text=command.text,
        out=command.out,
        form=command.format,
        text_column=command.text_column,
        batch=command.batch,
        checkpoint=command.checkpoint,
    )
    return 0


@run_command.register
def _(command: cli.Reproduce) -> int:
    study = _study(command.study)
    seeds = command.seeds if command.seeds is not None else 3 if command.queue else 1
    if seeds < 1 or command.jobs < 1:
        raise ConfigurationError(f"--seeds and --jobs must be 1 or more, not {seeds} and {command.jobs}")
    if command.rates is not None and command.rates < 1:
        raise ConfigurationError(f"--rates must be 1 or more, not {command.rates}")
    if command.queue and command.jobs > 1:
        raise ConfigurationError(f"a queue runs one job at a time, not {command.jobs}; leave out --jobs or --queue")
    keep_freed_memory()
    if command.queue:
        os.nice(19)
        whole = run_queue(
            study,
            scale=command.scale,
            seeds=seeds,
            runs=command.runs,
            results=command.results,
            settings=_settings(command),
            rates=command.rates,
            data_dir=command.data_dir,
        )
        return 0 if whole else 1
    whole = run_study(
        study,
        scale=command.scale,
        seeds=seeds,
        out=command.runs,
        jobs=command.jobs,
        settings=_settings(command),
        rates=command.rates,
        data_dir=command.data_dir,
    )
    if not whole:
        CONSOLE.print("not every run was finished; the same command carries on where it stopped")
        return 1
    return run_command(cli.Report((command.runs,), command.report))


@run_command.register
def _(command: cli.Report) -> int:
    try:
        from .report.page import write_report
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"the report needs {error.name}: {install_hint('all')}") from None
    page, left_out = write_report(list(command.runs), command.out)
    for line in left_out:
        CONSOLE.print(f"left out: {line}", soft_wrap=True)
    CONSOLE.print(f"report: {page}", soft_wrap=True)
    return 0


@run_command.register
def _(command: cli.Bench) -> int:
    from .bench.command import run_bench

    run_bench(
        CONSOLE,
        shapes=command.shapes,
        backends=command.backends,
        peers=command.peers,
        threads=command.threads,
        out=command.out,
        plot=command.plot,
        quick=command.quick,
        family=command.family,
        transformers=command.transformers,
    )
    return 0


@run_command.register
def _(command: cli.Export) -> int:
    try:
        from transformers.utils.logging import disable_progress_bar

        from .hf.export import export_run
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"export needs {error.name}: {install_hint('hf')}") from None
    disable_progress_bar()
    export_run(command.run, command.out, checkpoint=command.checkpoint)
    CONSOLE.print(f"exported: {command.out}", soft_wrap=True)
    return 0


@run_command.register
def _(command: cli.Serve) -> int:
    try:
        from .web.runs import load_models
        from .web.server import address, is_private, open_socket, serve
        from .web.studio import Studio
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"the page needs {error.name}: {install_hint('web')}") from None
    runs = command.runs or tuple(filter(None, [shipped_run()]))
    if not runs:
        raise RunError("there is no model to serve yet; make one: momentum train digits, then: momentum serve runs")
    with open_socket(command.host, command.port) as listening:
        models, translators, missing = load_models(runs, command.data_dir)
        if not is_private(listening):
            missing.append("others can reach this page: everyone in your network may use this machine's models")
        for line in missing:
            CONSOLE.print(line, soft_wrap=True)
        names = [*(model.name for model in models), *(translator.name for translator in translators)]
        shown = f"{len(names)} models" if len(names) > 1 else names[0]
        CONSOLE.print(f"{shown}: {address(listening)} (Ctrl-C stops)", soft_wrap=True)
        serve(Studio(models, translators), listening, host=command.host)
    CONSOLE.print("stopped")
    return 0
