"""Train a model, score it, or run a whole study; and show what there is to run."""

import os
import shlex
import sys
from importlib.util import find_spec

from rich.console import Console

from .. import options
from ..experiments import EXPERIMENTS, REPRODUCTIONS
from ..experiments.configuration import ConfigurationError, as_word, nearest
from ..experiments.experiment import Study
from ..experiments.runs import INTERRUPTED, Request, refuse_unused, run_evaluation, run_training, train_words
from ..experiments.study_runs import Plan, asked
from ..training.allocator import keep_freed_memory
from ..training.interruption import follow_parent
from ..training.run_directory import RunError
from .dispatch import CONSOLE, run_command
from .listing import show_all, show_one
from .places import need_folder
from .queue import run_queue
from .queue_state import show_queue
from .reproduce import run_study
from .sweep import slurm_script, sweep


@run_command.register
def _(command: options.List) -> int:
    if command.queue:
        need_folder("--runs", command.runs)
        need_folder("--results", command.results)
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


def check_subject(command: str, name: str) -> None:
    """Refuse a name that is neither an experiment nor a study."""
    if command == "train" and name not in EXPERIMENTS:
        raise nearest("experiment", name, list(EXPERIMENTS))
    if command == "reproduce":
        _study(name)


def _study(name: str) -> Study:
    if name not in REPRODUCTIONS:
        raise nearest("study", name, list(REPRODUCTIONS))
    return REPRODUCTIONS[name]


@run_command.register
def _(command: options.Train) -> int:
    request = Request(command.experiment, command.model, command.scale, command.seed, _settings(command))
    refuse_unused([request])
    need_folder("--runs", command.runs if command.out is None else None)
    need_folder("--out", command.out)
    out = command.out or request.directory(command.runs)
    follow_parent()
    keep_freed_memory()
    if find_spec("tensorboard") is None:
        CONSOLE.print("tensorboard is not installed: metrics go to metrics.jsonl only")
    if run_training(request, out, resume=command.resume, data_dir=command.data_dir):
        CONSOLE.print(f"finished: {out}", soft_wrap=True)
        if use := EXPERIMENTS[request.experiment].use:
            CONSOLE.print(f"use it: {use.replace('RUN', shlex.quote(str(out)))}", soft_wrap=True)
        return 0
    words = ["momentum", *train_words(request, ("--out", str(out)), command.data_dir)]
    CONSOLE.print(f"interrupted; everything is saved. Carry on with: {shlex.join(words)}", soft_wrap=True)
    return INTERRUPTED


def _settings(command: options.Train | options.Reproduce) -> tuple[str, ...]:
    """--fidelity, --source and others are settings with flags of their own."""
    flags = [] if command.fidelity == "paper" else [f"fidelity={command.fidelity}"]
    if isinstance(command, options.Train):
        if len(command.source) > 1 and command.experiment != "text":
            several = " ".join(map(str, command.source))
            raise ConfigurationError(f"--source of {command.experiment} is one file or folder, not {several}")
        given = {"source": ",".join(map(str, command.source)) or None, "target": command.target}
        given |= {"text_column": command.text_column, "label_column": command.label_column}
        flags += [f"data.{name}={as_word(str(value))}" for name, value in given.items() if value is not None]
    return (*command.settings, *flags)


@run_command.register
def _(command: options.Evaluate) -> int:
    if command.checkpoint not in ("best", "last"):
        raise nearest("checkpoint", command.checkpoint, ("best", "last"))
    keep_freed_memory()
    metrics = run_evaluation(command.run, command.checkpoint, split=command.split, data_dir=command.data_dir)
    for name, value in metrics.items():
        CONSOLE.print(f"{name}: {value:.6f}")
    return 0


@run_command.register
def _(command: options.Reproduce) -> int:
    study = _study(command.study)
    seeds = command.seeds if command.seeds is not None else 3 if command.queue else 1
    if seeds < 1 or command.jobs < 1:
        raise ConfigurationError(f"--seeds and --jobs must be 1 or more, not {seeds} and {command.jobs}")
    if command.rates is not None and command.rates < 1:
        raise ConfigurationError(f"--rates must be 1 or more, not {command.rates}")
    if command.queue and command.jobs > 1:
        raise ConfigurationError(f"a queue runs one job at a time, not {command.jobs}; leave out --jobs or --queue")
    need_folder("--runs", command.runs)
    need_folder("--results", command.results if command.queue else None)
    need_folder("--report", None if command.queue else command.report)
    refuse_unused([asked(name, variant, command.scale, _settings(command)) for name, variant in study.lines])
    plan = Plan(
        study, command.scale, seeds, command.runs, _settings(command), command.rates, data_dir=command.data_dir
    )
    if command.dry_run or command.slurm:
        return _print_sweep(command, plan)
    keep_freed_memory()
    if command.queue:
        os.nice(19)
        return 0 if run_queue(plan, command.results) else 1
    whole = run_study(plan, command.jobs)
    if not whole:
        CONSOLE.print("not every run was finished; the same command carries on where it stopped")
        return 1
    return run_command(options.Report((command.runs,), command.report))


def _print_sweep(command: options.Reproduce, plan: Plan) -> int:
    """Print the commands that are left, for a shell or for Slurm; notes go to standard error."""
    if command.queue or (command.dry_run and command.slurm):
        raise ConfigurationError("--dry-run, --slurm and --queue are three ways to run a study; name one")
    left = sweep(plan)
    for note in left.notes:
        Console(stderr=True, highlight=False, markup=False).print(note, soft_wrap=True)
    if command.slurm and not left.commands:
        raise RunError(f"nothing is left to run in {command.runs}")
    lines = (
        slurm_script(plan.study.name, left.commands)
        if command.slurm
        else "".join(f"{shlex.join(words)}\n" for words in left.commands)
    )
    sys.stdout.write(lines)
    return 0
