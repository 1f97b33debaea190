"""One process owns a run directory, and what a crash has left there is put right by the next owner."""

import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from momentum_transformer import durable
from momentum_transformer.experiments.configuration import to_json
from momentum_transformer.experiments.copy import CopyTask
from momentum_transformer.experiments.runs import Request, load_task, make_task, run_evaluation, run_training
from momentum_transformer.training import interruption, run_directory
from momentum_transformer.training.checkpoint import CheckpointError, read_checkpoint, save_checkpoint
from momentum_transformer.training.counters import Counters
from momentum_transformer.training.run_directory import RunDirectory, RunError, find_runs

OWNER = """
import sys
from pathlib import Path
from momentum_transformer.training.run_directory import RunDirectory
with RunDirectory(Path(sys.argv[1])).owned():
    print("owned", flush=True)
    sys.stdin.read()
"""
CHILD = """
import sys, time
from momentum_transformer.training.interruption import follow_parent
follow_parent()
print("started", flush=True)
time.sleep(60)
print("outlived it")
"""
PARENT = """
import os, subprocess, sys
from momentum_transformer.training.interruption import lifeline
with lifeline() as (pipe, more, _):
    child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], env={**os.environ, **more}, pass_fds=[pipe])
    child.wait()
"""


def tiny(*settings: str) -> Request:
    return Request("copy", "linear", "tiny", 0, settings)


def without_times(path: Path) -> list[dict[str, Any]]:
    times = ("seconds", "cpu_seconds", "tokens_per_second", "load")
    return [{k: v for k, v in line.items() if k not in times} for line in RunDirectory(path).metrics()]


def test_resuming_begins_where_there_is_nothing_to_carry_on(tmp_path: Path) -> None:
    assert run_training(tiny(), tmp_path / "a", resume=True)
    assert run_training(tiny(), tmp_path / "b", resume=False)
    assert without_times(tmp_path / "a") == without_times(tmp_path / "b")


def test_a_run_that_was_killed_before_its_first_checkpoint_is_begun_again(tmp_path: Path) -> None:
    """As versions before left it: a configuration without provenance, metrics, no checkpoint to carry on from."""
    run_training(tiny(), tmp_path / "whole", resume=False)
    run_training(tiny(), tmp_path / "cut", resume=False)
    for name in ("checkpoint/last.safetensors", "checkpoint/best.safetensors", "provenance.json"):
        (tmp_path / "cut" / name).unlink()
    (tmp_path / "cut" / "metrics.jsonl").write_text('{"kind": "validation", "step": 0, "lo')
    assert run_training(tiny(), tmp_path / "cut", resume=True)
    assert without_times(tmp_path / "cut") == without_times(tmp_path / "whole")
    assert RunDirectory(tmp_path / "cut").read("provenance.json")["command"]


def test_there_is_a_checkpoint_before_the_first_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(self: CopyTask, step: int, shard: int, shards: int) -> Any:
        raise RuntimeError("stop")

    monkeypatch.setattr(CopyTask, "batch", stop)
    with pytest.raises(RuntimeError):
        run_training(tiny(), tmp_path, resume=False)
    assert read_checkpoint(RunDirectory(tmp_path).last)[1]["step"] == 0


def test_a_finished_run_is_left_as_it_is(tmp_path: Path) -> None:
    run_training(tiny(), tmp_path, resume=False)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert run_training(tiny(), tmp_path, resume=True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_what_is_left_of_a_run_is_not_mistaken_for_a_new_one(tmp_path: Path) -> None:
    run_training(tiny(), tmp_path, resume=False)
    (tmp_path / "config.json").unlink()
    with pytest.raises(RunError, match=r"holds what is left of a run, without its config\.json"):
        run_training(tiny(), tmp_path, resume=True)


def test_a_second_owner_is_told_who_the_first_one_is_until_that_one_is_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_directory, "PATIENCE", 0.0)
    command = [sys.executable, "-c", OWNER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "owned\n"
        with pytest.raises(RunError, match=rf"is in use by process {first.pid} on \S+; wait for it to end"):
            run_training(tiny(), tmp_path, resume=True)
        first.kill()
    assert run_training(tiny(), tmp_path, resume=True)


def test_an_owner_that_is_about_to_end_is_waited_for(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    held, leave = threading.Event(), threading.Event()

    def own() -> None:
        with run.owned():
            held.set()
            leave.wait(10)

    other = threading.Thread(target=own)
    other.start()
    held.wait(10)
    timer = threading.Timer(0.1, leave.set)
    timer.start()
    with run.owned():
        other.join()
    timer.join()


@pytest.mark.parametrize("after", ["nothing", "empty", "another's"])
def test_a_run_whose_directory_is_removed_ends_and_writes_nothing_there(
    after: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, make = tmp_path / "run", CopyTask.batch

    def remove(self: CopyTask, step: int, shard: int, shards: int) -> Any:
        if step == 7:
            shutil.rmtree(run)
            if after != "nothing":
                run.mkdir()
            if after == "another's":
                (run / "owner.lock").touch()
        return make(self, step, shard, shards)

    monkeypatch.setattr(CopyTask, "batch", remove)
    with pytest.raises(RunError, match="run was removed or emptied during the run, which ends it"):
        run_training(tiny(), run, resume=False)
    assert run.exists() == (after != "nothing")
    assert [path.name for path in run.glob("*")] == ["owner.lock"] * (after == "another's")


@pytest.mark.parametrize(
    ("torn", "kept"),
    [
        ('{"kind": "tra', ""),
        ('{"kind": "train", "step": 2}', '{"kind": "train", "step": 2}\n'),
        ("", ""),
        ("[" * 100_000, ""),
    ],
    ids=["torn", "without its end of line", "whole", "deep"],
)
def test_a_torn_last_line_is_repaired_and_never_glued_to(torn: str, kept: str, tmp_path: Path) -> None:
    first = '{"kind": "train", "step": 1}\n'
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "metrics.jsonl").write_text(first + torn)
    run = RunDirectory(tmp_path)
    with run.owned():
        run.append_metrics({"kind": "end"})
    assert (tmp_path / "metrics.jsonl").read_text() == first + kept + '{"kind": "end"}\n'


def test_a_log_without_an_end_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "samples.jsonl").symlink_to("/dev/zero")
    with pytest.raises(RunError, match="cannot be used \\(it is not a file\\)"), RunDirectory(tmp_path).owned():
        pass


def test_scoring_a_run_where_nothing_can_be_written_says_what_can_be_done(tmp_path: Path) -> None:
    request, run = Request("recall", "linear", "tiny"), RunDirectory(tmp_path)
    run.create({**to_json(request), "config": to_json(request.config)})
    save_checkpoint(run.best, make_task(request, request.config, run, tmp_path).model.state_dict(), None, {"step": 0})
    (tmp_path / "owner.lock").mkdir()  # who may write everywhere cannot open this
    with pytest.raises(RunError, match=r"cannot be used \(.*\); the score .* is noted there: make it writable, or"):
        run_evaluation(tmp_path, "best", split="test")


LEFT = ("provenance.json.17.writing", "checkpoint/last.safetensors.17.writing", "checkpoint/.tmpAb12cD")
OTHERS = ("novel.writing", ".tmpnotes", "samples/.tmpdata", "checkpoint/sub/a.writing", "checkpoint/a.writing")


def test_temporary_files_of_dead_processes_are_removed_and_no_others(tmp_path: Path) -> None:
    for name in ("config.json", *LEFT, *OTHERS):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}\n")
    with RunDirectory(tmp_path).owned():
        assert not any((tmp_path / name).exists() for name in LEFT)
    assert all((tmp_path / name).exists() for name in OTHERS)


def test_a_folder_that_holds_no_run_is_left_as_it_is(tmp_path: Path) -> None:
    for name in (*LEFT, *OTHERS, "samples.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("mine")
    with RunDirectory(tmp_path).owned():
        pass
    assert all((tmp_path / name).read_text() == "mine" for name in (*LEFT, *OTHERS, "samples.jsonl"))


def test_a_file_is_on_the_disk_before_it_takes_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    sync, replace = durable.sync, Path.replace

    def noted_sync(path: Path) -> None:
        events.append(f"sync {path.name}")
        sync(path)

    def noted_replace(path: Path, target: Path) -> Path:
        events.append(f"replace {target.name}")
        return replace(path, target)

    monkeypatch.setattr(durable, "sync", noted_sync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    save_checkpoint(tmp_path / "checkpoint" / "last.safetensors", torch.nn.Linear(2, 2).state_dict(), None, {})
    folders = [f"sync {tmp_path.name}"]
    saved = [f"sync last.safetensors.{os.getpid()}.writing", "replace last.safetensors", "sync checkpoint"]
    assert events == folders + saved


def test_a_checkpoint_is_as_readable_as_its_folder(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir(mode=0o755)
    path = tmp_path / "shared" / "last.safetensors"
    save_checkpoint(path, torch.nn.Linear(2, 2).state_dict(), None, {})
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_weights_that_are_not_finite_are_no_checkpoint(tmp_path: Path) -> None:
    path, model = tmp_path / "last.safetensors", torch.nn.Linear(2, 2)
    save_checkpoint(path, model.state_dict(), None, {"step": 1})
    before = path.read_bytes()
    with torch.no_grad():
        model.bias[1] = torch.inf
    with pytest.raises(
        CheckpointError, match=r"model\.bias is not finite after step 2, so it was not saved; .* safe in"
    ):
        save_checkpoint(path, model.state_dict(), None, {"step": 2})
    assert path.read_bytes() == before


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM], ids=lambda number: number.name)
def test_every_request_to_end_saves_and_metrics_are_those_of_a_run_that_never_stopped(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = tiny("train.log_every=4", "train.evaluate_every=6", "model.dropout=0.1")
    original = CopyTask.batch

    def interrupt(self: CopyTask, step: int, shard: int, shards: int) -> Any:
        if step == 12:  # twice: schedulers repeat themselves
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), number)
        return original(self, step, shard, shards)

    run_training(request, tmp_path / "whole", resume=True)
    monkeypatch.setattr(CopyTask, "batch", interrupt)
    assert not run_training(request, tmp_path / "cut", resume=True)
    saved = read_checkpoint(RunDirectory(tmp_path / "cut").last)[1]
    assert (saved["step"], saved["logged_step"], len(saved["losses"])) == (13, 12, 1)
    monkeypatch.setattr(CopyTask, "batch", original)
    assert run_training(request, tmp_path / "cut", resume=True)
    assert without_times(tmp_path / "cut") == without_times(tmp_path / "whole")


def test_nohup_keeps_a_run_going(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruption.interruptible() as flag:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not flag.is_set
            os.kill(os.getpid(), signal.SIGTERM)
            assert flag.is_set
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_scale_of_float16_gradients_is_carried_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scaler's growth is counted over many steps."""
    request = tiny("train.precision=float16", "train.steps=6", "train.save_every=2")
    scalers: list[torch.amp.GradScaler] = []
    made = torch.amp.GradScaler

    def watched(device: str, enabled: bool) -> torch.amp.GradScaler:
        scalers.append(made(device, init_scale=64.0, growth_interval=4, enabled=enabled))
        return scalers[-1]

    monkeypatch.setattr(torch.amp, "GradScaler", watched)
    run_training(request, tmp_path, resume=False)
    _, progress = read_checkpoint(RunDirectory(tmp_path).last)
    assert progress["scaler"]["scale"] == 128.0
    assert progress["scaler"]["_growth_tracker"] == 2
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "metrics.jsonl").write_text("".join(line for line in lines if '"concluded"' not in line))
    run_training(request, tmp_path, resume=True)
    assert scalers[1].state_dict() == progress["scaler"]


def test_counters_of_a_version_before_are_carried_on(tmp_path: Path) -> None:
    request = tiny()
    run_training(request, tmp_path, resume=False)
    run = RunDirectory(tmp_path)
    expected = without_times(tmp_path)
    _, progress = read_checkpoint(run.last)
    old = {name: progress[name] for name in ("step", "seconds", "cpu_seconds", "best_score", "best_step")}
    assert old.keys() < vars(Counters()).keys()
    task, _, _ = load_task(tmp_path, "last")
    save_checkpoint(run.last, task.model.state_dict(), None, old)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "metrics.jsonl").write_text("".join(line for line in lines if '"concluded"' not in line))
    assert run_training(request, tmp_path, resume=True)
    assert without_times(tmp_path) == expected


NULS = b"\0" * 100 + b"\n" + b'{"kind": "end"}\n'


def test_damage_behind_what_the_checkpoint_knows_is_dropped(tmp_path: Path) -> None:
    """As after a loss of power: of lines that were not synced, the room is there and the content is not."""
    run_training(tiny(), tmp_path, resume=False)
    whole, metrics = without_times(tmp_path), tmp_path / "metrics.jsonl"
    during = [line for line in metrics.read_bytes().splitlines(keepends=True) if b'"end"' not in line][:-1]
    metrics.write_bytes(b"".join(during) + NULS)
    assert run_training(tiny(), tmp_path, resume=True)
    assert without_times(tmp_path) == whole
    metrics.write_bytes(b"".join(during[:-1]) + NULS + during[-1])  # the checkpoint knows the line behind it
    with pytest.raises(RunError, match=rf"line {len(during)} is not JSON"):
        run_training(tiny(), tmp_path, resume=True)


def test_metrics_without_a_checkpoint_are_not_dropped_in_silence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_training(tiny(), tmp_path, resume=True)
    assert "begins again" not in capsys.readouterr().out
    (tmp_path / "checkpoint" / "last.safetensors").unlink()
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "metrics.jsonl").write_text("".join(line for line in lines if '"concluded"' not in line))
    assert run_training(tiny(), tmp_path, resume=True)
    assert "has metrics but no checkpoint to carry on from: they are dropped" in capsys.readouterr().out


def test_damaged_provenance_is_as_good_as_none(tmp_path: Path) -> None:
    run_training(tiny(), tmp_path, resume=False)
    (tmp_path / "metrics.jsonl").write_text("")
    (tmp_path / "provenance.json").write_bytes(b"\0\xff{")
    assert run_training(tiny(), tmp_path, resume=True)
    assert RunDirectory(tmp_path).read("provenance.json")["command"]


def test_why_an_attempt_failed_is_kept_until_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = CopyTask.batch

    def fail(self: CopyTask, step: int, shard: int, shards: int) -> Any:
        raise RunError("the reason")

    monkeypatch.setattr(CopyTask, "batch", fail)
    with pytest.raises(RunError):
        run_training(tiny(), tmp_path, resume=True)
    assert RunDirectory(tmp_path).failure() == "the reason"
    monkeypatch.setattr(CopyTask, "batch", original)
    assert run_training(tiny(), tmp_path, resume=True)
    assert RunDirectory(tmp_path).failure() is None


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"one\n\x1b[2Jtwo\n", r"\x1b[2Jtwo"), (b"\xff\n", "\ufffd"), (b"\n" * 1_000_000, None), (b"", None)],
    ids=["escapes", "no text", "lines", "empty"],
)
def test_what_is_said_of_a_failure_is_a_short_line(content: bytes, said: str | None, tmp_path: Path) -> None:
    (tmp_path / "failure.txt").write_bytes(content)
    assert RunDirectory(tmp_path).failure() == said


def test_children_end_with_a_parent_that_was_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, CHILD], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "started\n"
        parent.kill()
        assert parent.stdout.read() == ""  # which ends when the child, too, has let go of it


@pytest.mark.parametrize("place", ["my", "text/gated-delta/small-seed0"])
def test_a_folder_of_runs_names_one_of_them(tmp_path: Path, place: str) -> None:
    run = RunDirectory(tmp_path / place)
    run.path.mkdir(parents=True)
    run.write("config.json", {})
    with pytest.raises(RunError, match=rf"is not a run directory: it has no config\.json; {tmp_path / place} is one$"):
        RunDirectory(tmp_path).read("config.json")


def test_runs_behind_links_are_found_once(tmp_path: Path) -> None:
    for place in ("elsewhere/linked", "runs/own"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "config.json").touch()
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "runs" / "again").symlink_to(tmp_path / "runs")
    found = [str(run.path.relative_to(tmp_path)) for run in find_runs(tmp_path / "runs")]
    assert found == ["runs/link/linked", "runs/own"]
