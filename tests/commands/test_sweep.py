"""A study for somebody else to run: what is left, what has failed, and an array job that does it."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from momentum_transformer.cli import main
from momentum_transformer.commands import reproduce
from momentum_transformer.commands.reproduce import run_study
from momentum_transformer.commands.sweep import slurm_script, sweep
from momentum_transformer.experiments.experiment import Study, Variant
from momentum_transformer.experiments.runs import Request, run_training
from momentum_transformer.experiments.study_runs import Plan
from momentum_transformer.training.loop import TrainingError
from momentum_transformer.training.run_directory import RunDirectory

SHORT = ("train.steps=2",)


def asked(*words: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(["reproduce", "copy", "--scale", "tiny", "--set", SHORT[0], *words])
    assert isinstance(stopped.value.code, int)
    return stopped.value.code


def test_a_dry_run_prints_one_command_a_line_and_skips_what_is_finished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "my runs"
    assert asked("--dry-run", "--runs", str(runs)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert not runs.exists()
    request = Request("copy", "linear", "tiny", 0, SHORT)
    assert run_training(request, request.directory(runs), resume=True)
    capsys.readouterr()
    assert asked("--dry-run", "--runs", str(runs)) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines() == [line for line in lines if "--model linear" not in line]
    assert shown.err == "finished already: 1 runs\n"


def test_a_command_of_the_list_runs_in_a_shell_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked("--dry-run", "--runs", str(tmp_path / "my runs"))
    first = capsys.readouterr().out.splitlines()[0]
    for _ in range(2):  # the second time there is nothing left to do
        subprocess.run(["sh", "-c", first], check=True, capture_output=True)
    assert RunDirectory(tmp_path / "my runs/copy/softmax/tiny-seed0,train.steps=2").concluded()


def test_the_array_job_runs_the_command_of_its_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    commands = [["touch", "first one"], ["touch", "second"]]
    script = slurm_script("toy", commands)
    unknown = subprocess.run(["bash"], input=script, env={**os.environ, "SLURM_ARRAY_TASK_ID": "99"}, text=True)
    assert unknown.returncode == 2
    assert "#SBATCH --array=0-1\n" in script
    subprocess.run(["bash", "-c", script], env={**os.environ, "SLURM_ARRAY_TASK_ID": "0"}, check=True, cwd="/")
    assert [path.name for path in tmp_path.iterdir()] == ["first one"]


def test_slurm_gets_what_is_left_and_is_told_when_that_is_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = ("--runs", str(tmp_path / "runs"))
    assert asked("--slurm", *runs) == 0
    script = capsys.readouterr().out
    assert script.startswith("#!/bin/bash\n#SBATCH --job-name=momentum-copy\n#SBATCH --array=0-5\n")
    assert script.count(f"exec {sys.executable} -m momentum_transformer train copy") == 6
    assert asked("--report", str(tmp_path / "report"), *runs) == 0
    capsys.readouterr()
    assert asked("--slurm", *runs) == 2
    assert capsys.readouterr().err.endswith(f"momentum: nothing is left to run in {tmp_path / 'runs'}\n")
    assert asked("--slurm", "--dry-run", *runs) == 2
    assert "name one" in capsys.readouterr().err


def test_a_run_that_fails_is_named_with_its_last_line_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail_once(request: Request, out: Path, *, resume: bool, data_dir: Path | None = None) -> bool:
        if request.model == "linear":
            run = RunDirectory(out)
            with run.owned(), run.failure_noted():
                raise TrainingError("the loss became nan at step 2")
        return run_training(request, out, resume=resume, data_dir=data_dir)

    monkeypatch.setattr(reproduce, "run_training", fail_once)
    study = Study("toy", "Toy", "copy", (Variant("linear"), Variant("softmax")))
    assert not run_study(Plan(study, "tiny", 1, tmp_path, settings=SHORT))
    failed = f"failed: {tmp_path}/copy/linear/tiny-seed0,train.steps=2: the loss became nan at step 2"
    assert failed in capsys.readouterr().out
    left = sweep(Plan(study, "tiny", 1, tmp_path, settings=SHORT))
    assert left.notes == ["finished already: 1 runs", failed]
    assert len(left.commands) == 1


def test_a_damaged_run_is_listed_as_failed_and_the_others_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = Plan(Study("toy", "Toy", "copy", (Variant("linear"), Variant("softmax"))), "tiny", 1, tmp_path, SHORT)
    assert run_study(plan)
    metrics = tmp_path / "copy" / "linear" / "tiny-seed0,train.steps=2" / "metrics.jsonl"
    metrics.write_text("garbage\n" + metrics.read_text())
    failed = f"failed: {metrics.parent}: {metrics} cannot be read: line 1 is not JSON"
    assert sweep(plan).notes == ["finished already: 1 runs", failed]
    capsys.readouterr()
    assert not run_study(plan)
    assert failed in capsys.readouterr().out


def test_a_child_that_fails_is_named_with_its_last_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    study = Study("toy", "Toy", "copy", (Variant("linear"), Variant("softmax")))
    settings = ("train.steps=2", "train.learning_rate=1e38")
    assert not run_study(Plan(study, "tiny", 1, tmp_path, settings=settings), jobs=2)
    out, err = capfd.readouterr()
    for model in ("linear", "softmax"):
        path = Request("copy", model, "tiny", 0, settings).directory(tmp_path)
        assert f"failed: {path}: {RunDirectory(path).failure()}" in out
    assert "Traceback" not in err


def test_what_waits_for_others_comes_later(tmp_path: Path) -> None:
    student = Variant("softmax", SHORT, waits=True)
    study = Study("toy", "Toy", "copy", (Variant("linear", SHORT), student, Variant("momentum", SHORT, rates=(1, 3))))
    left = sweep(Plan(study, "tiny", 2, tmp_path))
    models = [words[words.index("--model") + 1] for words in left.commands]
    assert models == ["linear", "momentum", "momentum", "linear"]
    assert left.notes == ["3 more runs wait for these; ask again when they are finished"]


CHILD = """
import os, select, sys
pipe = int(os.environ["MOMENTUM_LIFELINE"])
open(sys.argv[1], "w").close()
sys.exit(0 if select.select([pipe], [], [], 60)[0] else 3)
"""


def test_a_signal_to_the_parent_alone_ends_the_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = [tmp_path / name for name in ("linear", "softmax")]
    codes: list[int] = []
    run_child = subprocess.run

    def noted(*words: Any, **options: Any) -> Any:
        done = run_child(*words, **options)
        codes.append(done.returncode)
        return done

    def interrupt() -> None:
        while not all(path.exists() for path in started):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    def words(request: Request, *_: Any) -> list[str]:
        return [sys.executable, "-c", CHILD, str(tmp_path / request.model)]

    monkeypatch.setattr(reproduce, "command", words)
    monkeypatch.setattr(subprocess, "run", noted)
    threading.Thread(target=interrupt, daemon=True).start()
    study = Study("toy", "Toy", "copy", (Variant("linear"), Variant("softmax")))
    assert not run_study(Plan(study, "tiny", 1, tmp_path / "runs"), jobs=2)
    assert codes == [0, 0]
