"""The queue: in order, one at a time, and after any interruption from where it was."""

import io
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from momentum_transformer import durable
from momentum_transformer.commands import queue
from momentum_transformer.commands.queue import run_queue, running
from momentum_transformer.commands.queue_state import Progress, queue_state, seconds_left, show_queue
from momentum_transformer.experiments import EXPERIMENTS, REPRODUCTIONS
from momentum_transformer.experiments import paper_tables as tables
from momentum_transformer.experiments.experiment import Study, Variant
from momentum_transformer.experiments.runs import Request, run_training
from momentum_transformer.experiments.study_runs import Plan, is_done, requests
from momentum_transformer.training.loop import TrainingError
from momentum_transformer.training.run_directory import RunDirectory, RunError

TOY = Study("toy", "Toy", "copy", (Variant("linear"), Variant("softmax", ("train.steps=4",))))
KILLED = """
import os, signal, sys
from pathlib import Path
from momentum_transformer.experiments.experiment import Study, Variant
from momentum_transformer.experiments.study_runs import Plan
from momentum_transformer.commands.queue import run_queue
from momentum_transformer.training import loop

saves, save = 0, loop.save_checkpoint

def killed(*arguments):
    global saves
    save(*arguments)
    saves += 1
    if saves == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)

loop.save_checkpoint = killed
root = Path(sys.argv[1])
study = Study("toy", "Toy", "copy", (Variant("linear"),))
run_queue(Plan(study, "tiny", 1, root / "runs"), root / "results")
"""


def work(study: Study, root: Path, *, seeds: int = 1) -> bool:
    return run_queue(Plan(study, "tiny", seeds, root / "runs"), root / "results")


def state(study: Study, root: Path, *, seeds: int = 1) -> list[Progress]:
    return queue_state(study, scale="tiny", seeds=seeds, runs=root / "runs", results=root / "results")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Model and seed of every run that the queue starts."""
    calls = []

    def noted(request: Request, out: Path, *, resume: bool, data_dir: Path | None = None) -> bool:
        calls.append((request.model, request.seed))
        return run_training(request, out, resume=resume, data_dir=data_dir)

    monkeypatch.setattr(queue, "run_training", noted)
    return calls


def test_the_tables_come_in_order_of_value_and_further_seeds_at_the_end() -> None:
    wanted = [request for request, _ in requests(REPRODUCTIONS["tables"], "medium", 3)]
    assert [request.seed for request in wanted] == sorted(request.seed for request in wanted)
    first = [request for request in wanted if request.seed == 0]
    order = list(dict.fromkeys(request.experiment for request in first))
    pictures_and_text = ["multi30k", "lra-text", "lra-image", "cifar10", "lra-retrieval"]
    assert order == ["copy", "lra-listops", "mnist", *pictures_and_text]
    copy = [request.model for request in first if request.experiment == "copy"]
    assert copy[:4] == ["softmax", "linear", "momentum", "adaptive-momentum"]
    listops = [request for request in first if request.experiment == "lra-listops" and request.model == "momentum"]
    assert [request.config.train.learning_rate for request in listops] == [1e-4, 1e-3]
    teacher, *students = [request for request in first if request.experiment == "multi30k"]
    assert teacher.model == "autoregressive"
    assert all(request.config.data.teacher == "autoregressive" for request in students)
    assert len({request.directory(Path()) for request in wanted}) == len(wanted)


def test_a_model_is_in_the_tables_as_soon_as_its_experiment_has_it() -> None:
    models = EXPERIMENTS["mnist"].models
    part = tables.part("mnist", ("linear", "not-yet", *models[-1:]))
    assert [variant.model for variant in part.variants] == ["linear", models[-1]]


def test_runs_come_one_after_the_other_and_what_is_finished_is_kept(
    tmp_path: Path, started: list[tuple[str, int]]
) -> None:
    assert work(TOY, tmp_path, seeds=2)
    assert started == [("linear", 0), ("softmax", 0), ("linear", 1), ("softmax", 1)]
    assert work(TOY, tmp_path, seeds=2)
    assert len(started) == 4


def test_what_is_in_the_results_is_finished_even_where_its_run_is_gone(
    tmp_path: Path, started: list[tuple[str, int]]
) -> None:
    assert work(TOY, tmp_path)
    (tmp_path / "runs").rename(tmp_path / "elsewhere")
    assert work(TOY, tmp_path)
    assert len(started) == 2
    assert [progress.state for progress in state(TOY, tmp_path)] == ["done", "done"]


def test_results_are_copied_without_weights(tmp_path: Path) -> None:
    study = Study("toy", "Toy", "digits", (Variant("linear"),))
    assert work(study, tmp_path)
    run, kept = (tmp_path / name / "digits" / "linear" / "tiny-seed0" for name in ("runs", "results"))
    files = sorted(str(path.relative_to(kept)) for path in kept.rglob("*") if path.is_file())
    assert files == ["config.json", "metrics.jsonl", "provenance.json", "samples/grid.png"]
    assert all((run / name).read_bytes() == (kept / name).read_bytes() for name in files)


def test_results_that_were_half_copied_are_copied_again(tmp_path: Path, started: list[tuple[str, int]]) -> None:
    assert work(TOY, tmp_path)
    kept = RunDirectory(tmp_path / "results" / "copy" / "linear" / "tiny-seed0")
    (kept.path / "metrics.jsonl").write_text('{"kind": "validation", "st')
    assert not is_done(kept)
    assert work(TOY, tmp_path)
    assert is_done(kept)
    assert len(started) == 2


def test_a_copy_counts_once_all_of_it_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is killed at each sync in turn."""
    run, kept = RunDirectory(tmp_path / "run"), RunDirectory(tmp_path / "kept")
    run_training(Request("digits", "linear", "tiny", 0, ("train.steps=2",)), run.path, resume=False)
    synced: set[str] = set()

    def kill_at(number: int) -> Callable[[Path], None]:
        def noted(path: Path) -> None:
            if len(calls) == number:
                raise KeyboardInterrupt
            calls.append(path)
            sync(path)
            synced.add(path.name.removesuffix(f".{os.getpid()}{durable.WRITING}"))

        calls: list[Path] = []
        return noted

    sync, numbers = durable.sync, itertools.count()
    while not is_done(kept):
        synced.clear()
        monkeypatch.setattr(durable, "sync", kill_at(next(numbers)))
        with suppress(KeyboardInterrupt):
            queue.copy_results(run, kept)
    assert synced >= {path.name for path in kept.path.rglob("*")} >= {"grid.png", "samples", "metrics.jsonl"}


@pytest.mark.parametrize(("saves", "found"), [(1, "left"), (2, "stopped"), (4, "stopped")])
def test_a_run_that_was_killed_is_carried_on_or_starts_anew(
    saves: int, found: str, tmp_path: Path, started: list[tuple[str, int]]
) -> None:
    """The first save is the best checkpoint before step 1, the second one is what can be carried on."""
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), str(saves)], capture_output=True)
    assert killed.returncode == -signal.SIGKILL
    study = Study("toy", "Toy", "copy", (Variant("linear"),))
    assert [progress.state for progress in state(study, tmp_path)] == [found]
    assert work(study, tmp_path)
    assert started == [("linear", 0)]
    whole = tmp_path / "whole"
    assert run_training(Request("copy", "linear", "tiny"), whole, resume=False)
    losses = [
        [line["loss"] for line in RunDirectory(path).metrics() if line["kind"] == "validation"]
        for path in (whole, tmp_path / "results" / "copy" / "linear" / "tiny-seed0")
    ]
    assert losses[0] == losses[1]


def test_an_interruption_ends_the_queue_and_a_failure_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = []

    def answer(answers: Sequence[Any]) -> Any:
        def run(request: Request, out: Path, *, resume: bool, data_dir: Path | None = None) -> bool:
            calls.append(request.model)
            given = answers[len(calls) - 1]
            if isinstance(given, Exception):
                raise given
            return bool(given)

        return run

    monkeypatch.setattr(queue, "run_training", answer([TrainingError("the loss became nan"), False]))
    assert not work(TOY, tmp_path)
    assert calls == ["linear", "softmax"]
    assert "tiny-seed0: the loss became nan" in capsys.readouterr().out
    calls.clear()
    monkeypatch.setattr(queue, "run_training", answer([False]))
    assert not work(TOY, tmp_path)
    assert calls == ["linear"]


def test_a_run_that_cannot_be_read_is_said_and_the_next_one_takes_its_turn(
    tmp_path: Path, started: list[tuple[str, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    run = RunDirectory(Request("copy", "linear", "tiny").directory(tmp_path / "runs"))
    run.create({})
    (run.path / "metrics.jsonl").write_text("no JSON\n{}\n")
    assert not work(TOY, tmp_path)
    assert started == [("linear", 0), ("softmax", 0)]
    assert f"failed: {run.path}: {run.path}/" in capsys.readouterr().out


def test_one_queue_at_a_time_works_in_a_folder_and_says_at_which_run_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def look(request: Request, out: Path, *, resume: bool, data_dir: Path | None = None) -> bool:
        with pytest.raises(RunError, match="a queue is at work in"):
            work(TOY, tmp_path)
        seen.append((running(tmp_path / "runs"), torch.get_num_threads()))
        seen.append([progress.state for progress in state(TOY, tmp_path)])
        return False

    monkeypatch.setattr(queue, "run_training", look)
    assert running(tmp_path / "runs") is None
    work(TOY, tmp_path)
    assert seen == [(tmp_path / "runs" / "copy" / "linear" / "tiny-seed0", 1), ["running", "left"]]
    assert running(tmp_path / "runs") is None


def test_hours_left_come_from_the_run_itself_or_from_runs_alike_or_are_unknown() -> None:
    def progress(experiment: str, model: str, share: float, seconds: float) -> Progress:
        return Progress(Request(experiment, model, "tiny"), "left", share, seconds)

    half = progress("copy", "softmax", 0.5, 100)
    done = progress("copy", "linear", 1.0, 300)
    everything = [half, done]
    assert seconds_left(half, everything) == 100
    assert seconds_left(done, everything) == 0
    assert seconds_left(progress("copy", "linear", 0.0, 0), everything) == 300
    assert seconds_left(progress("copy", "momentum", 0.0, 0), everything) == 250
    assert seconds_left(progress("mnist", "momentum", 0.0, 0), everything) is None


def test_the_queue_is_shown_in_80_columns(tmp_path: Path) -> None:
    run = RunDirectory(Request("copy", "softmax", "medium").directory(tmp_path / "runs"))
    run.create({})
    run.last.parent.mkdir()
    run.last.touch()
    run.append_metrics({"kind": "train", "step": 2000, "seconds": 720.0})
    done = RunDirectory(Request("copy", "linear", "medium").directory(tmp_path / "results"))
    done.create({})
    done.append_metrics({"kind": "end", "step": 8000, "seconds": 3600.0})
    done.append_metrics({"kind": "translation", "refinements": 4})
    done.append_metrics({"kind": "concluded", "step": 8000})
    console = Console(width=80, file=io.StringIO())
    show_queue(
        REPRODUCTIONS["tables"],
        scale="medium",
        seeds=2,
        runs=tmp_path / "runs",
        results=tmp_path / "results",
        console=console,
    )
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    rows = [line.split() for line in lines]
    assert ["copy", "softmax", "0", "stopped,", "25", "%", "0.20", "~0.60"] in rows
    assert ["copy", "linear", "0", "done", "1.00", "–"] in rows
    assert ["copy", "linear", "1", "left", "–", "~1.00"] in rows
    assert ["lra-image", "momentum", "0", "left", "–", "?"] in rows
    assert ["train.learning_rate=0.001"] in rows
    assert ["data.teacher=autoregressive"] in rows
    assert "1 of" in lines[-2]
    assert "1.2 hours" in lines[-2]


def test_the_command_takes_the_lowest_priority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from momentum_transformer import commands, options

    asked: list[Plan] = []
    niceness: list[int] = []

    def noted(plan: Plan, results: Path) -> bool:
        asked.append(plan)
        return True

    monkeypatch.setattr(os, "nice", niceness.append)
    monkeypatch.setattr(commands.run_commands, "run_queue", noted)
    command = options.Reproduce(
        "tables", scale="medium", queue=True, runs=tmp_path / "runs", results=tmp_path / "results"
    )
    assert commands.run_command(command) == 0
    assert niceness == [19]
    assert [(plan.study.name, plan.scale, plan.seeds) for plan in asked] == [("tables", "medium", 3)]
