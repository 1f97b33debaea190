"""What each command of the `momentum` line does."""

import os
import shlex
import sys
from functools import singledispatch
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console

from . import cli
from .experiments import REPRODUCTIONS
from .experiments.configuration import ConfigurationError, nearest
from .experiments.drawing import generate_pictures
from .experiments.experiment import Study
from .experiments.listing import show_all, show_one
from .experiments.queue import run_queue
from .experiments.queue_state import show_queue
from .experiments.reproduce import run_study
from .experiments.runs import (
    INTERRUPTED,
    Request,
    experiment_of,
    run_evaluation,
    run_training,
    train_words,
)
from .experiments.shipped import shipped_run, shipped_runs
from .experiments.sweep import slurm_script, sweep
from .experiments.translating import translate_text
from .experiments.writing import write_text
from .generation.tokens import Sampling
from .training.allocator import keep_freed_memory
from .training.interruption import follow_parent
from .training.run_directory import RunError

CONSOLE = Console(highlight=False, quiet=os.environ.get("RANK", "0") != "0")  # torchrun's first process speaks


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
    if command.name is None:
        show_all(CONSOLE)
    else:
        show_one(command.name, CONSOLE)
    return 0


def _study(name: str) -> Study:
    if name not in REPRODUCTIONS:
        raise nearest("study", name, list(REPRODUCTIONS))
    return REPRODUCTIONS[name]


@run_command.register
def _(command: cli.Train) -> int:
    request = Request(command.experiment, command.model, command.scale, command.seed, _settings(command))
    out = command.out or request.directory(command.runs)
    follow_parent()
    keep_freed_memory()
    if find_spec("tensorboard") is None:
        CONSOLE.print("tensorboard is not installed: metrics go to metrics.jsonl only")
    if run_training(request, out, resume=command.resume, data_dir=command.data_dir):
        CONSOLE.print(f"finished: {out}", soft_wrap=True)
        return 0
    words = ["momentum", *train_words(request, ("--out", str(out)), command.data_dir)]
    CONSOLE.print(f"interrupted; everything is saved. Carry on with: {shlex.join(words)}", soft_wrap=True)
    return INTERRUPTED


def _settings(command: cli.Train | cli.Reproduce) -> tuple[str, ...]:
    """--fidelity, --source and --target are settings with flags of their own."""
    flags = [] if command.fidelity == "paper" else [f"fidelity={command.fidelity}"]
    if isinstance(command, cli.Train):
        source = ",".join(map(str, command.source))
        files = {"source": source or None, "target": command.target}
        flags += [f"data.{side}={file}" for side, file in files.items() if file is not None]
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
    heat = {} if command.temperature is None else {"temperature": command.temperature}
    if experiment_of(run) == "text":
        try:
            sampling = Sampling(top_k=command.top_k, top_p=command.top_p, seed=command.seed, **heat)
        except ValueError as error:
            raise ConfigurationError(f"--{error}") from None
        write_text(
            run,
            prompt=command.prompt,
            tokens=command.tokens,
            sampling=sampling,
            stop=command.stop,
            checkpoint=command.checkpoint,
        )
        return 0
    generate_pictures(
        run,
        count=command.count,
        temperature=heat.get("temperature", 1.0),
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
def _(command: cli.Reproduce) -> int:
    study = _study(command.study)
    seeds = command.seeds if command.seeds is not None else 3 if command.queue else 1
    if seeds < 1 or command.jobs < 1:
        raise ConfigurationError(f"--seeds and --jobs must be 1 or more, not {seeds} and {command.jobs}")
    if command.rates is not None and command.rates < 1:
        raise ConfigurationError(f"--rates must be 1 or more, not {command.rates}")
    if command.queue and command.jobs > 1:
        raise ConfigurationError(f"a queue runs one job at a time, not {command.jobs}; leave out --jobs or --queue")
    if command.dry_run or command.slurm:
        return _print_sweep(command, study, seeds)
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


def _print_sweep(command: cli.Reproduce, study: Study, seeds: int) -> int:
    """What is left, for a shell or for Slurm; what is to be known of it goes beside it."""
    if command.queue or (command.dry_run and command.slurm):
        raise ConfigurationError("--dry-run, --slurm and --queue are three ways to run a study; name one")
    left = sweep(
        study,
        scale=command.scale,
        seeds=seeds,
        out=command.runs,
        settings=_settings(command),
        rates=command.rates,
        data_dir=command.data_dir,
    )
    for note in left.notes:
        Console(stderr=True, highlight=False, markup=False).print(note, soft_wrap=True)
    if command.slurm and not left.commands:
        raise RunError(f"nothing is left to run in {command.runs}")
    lines = (
        slurm_script(study.name, left.commands)
        if command.slurm
        else "".join(f"{shlex.join(words)}\n" for words in left.commands)
    )
    sys.stdout.write(lines)
    return 0


@run_command.register
def _(command: cli.Report) -> int:
    try:
        from .report.page import write_report
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"the report needs {error.name}: pip install 'momentum-transformer[all]'") from None
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
        raise ConfigurationError(f"export needs {error.name}: pip install 'momentum-transformer[hf]'") from None
    disable_progress_bar()
    export_run(command.run, command.out, checkpoint=command.checkpoint)
    CONSOLE.print(f"exported: {command.out}", soft_wrap=True)
    return 0


@run_command.register
def _(command: cli.Serve) -> int:
    try:
        from .web.runs import load_models
        from .web.server import address, new_token, open_socket, serve
        from .web.studio import Studio
        from .web.training import Watch
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"the page needs {error.name}: pip install 'momentum-transformer[web]'") from None
    runs = command.runs or shipped_runs()
    if not runs:
        raise RunError("there is no model to serve yet; make one: momentum train digits, then: momentum serve runs")
    with open_socket(command.host, command.port) as listening:
        loaded = load_models(runs, command.data_dir)
        missing = loaded.missing
        token = new_token(listening)
        if token is not None:
            missing.append("others can reach this page: whoever has this link may use this machine's models")
        for line in missing:
            CONSOLE.print(line, soft_wrap=True)
        names = loaded.names
        shown = f"{len(names)} models" if len(names) > 1 else names[0] if names else "no model yet, but runs to watch"
        CONSOLE.print(f"{shown}: {address(listening, token)} (Ctrl-C stops)", soft_wrap=True)
        watch = Watch(command.runs or (Path("runs"),), *(() if command.runs else runs))
        serve(Studio(*loaded[:3]), watch, listening, host=command.host, token=token)
    CONSOLE.print("stopped")
    return 0
