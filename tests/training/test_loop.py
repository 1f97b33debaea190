"""Runs people can trust: resuming, interrupting, splitting a batch, and failing well."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from momentum_transformer.cli import main
from momentum_transformer.experiments import EXPERIMENTS
from momentum_transformer.experiments.configuration import override
from momentum_transformer.experiments.copy import CopyTask
from momentum_transformer.experiments.runs import Request, run_evaluation, run_training
from momentum_transformer.training import checkpoint
from momentum_transformer.training.checkpoint import CheckpointError, read_checkpoint
from momentum_transformer.training.config import TrainConfig
from momentum_transformer.training.distributed import World, WorldError
from momentum_transformer.training.evaluation import DroppedError, until_interrupted
from momentum_transformer.training.interruption import Interruption
from momentum_transformer.training.loop import TrainingError
from momentum_transformer.training.optimizers import clip_gradients, learning_rate
from momentum_transformer.training.run_directory import RunDirectory, RunError
from tests.ranks import threads_for_processes

DROPOUT = ("model.dropout=0.1",)


def tiny(*settings: str, model: str = "adaptive-momentum") -> Request:
    return Request("copy", model, "tiny", 0, settings)


def losses(path: Path) -> list[tuple[str, int, float]]:
    return [(line["kind"], line["step"], line["loss"]) for line in RunDirectory(path).metrics() if "loss" in line]


def train_and_stop(request: Request, run: Path) -> None:
    """As far as step 12, where somebody presses Ctrl-C."""
    original = CopyTask.batch

    def interrupt(self: CopyTask, step: int, shard: int, shards: int) -> Any:
        if step == 12:
            os.kill(os.getpid(), signal.SIGINT)
        return original(self, step, shard, shards)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CopyTask, "batch", interrupt)
        assert not run_training(request, run, resume=False)


def test_resuming_is_bit_identical_to_never_having_stopped(tmp_path: Path) -> None:
    request = tiny(*DROPOUT)
    assert run_training(request, tmp_path / "whole", resume=False)
    train_and_stop(request, tmp_path / "cut")
    assert not RunDirectory(tmp_path / "cut").finished()
    assert run_training(request, tmp_path / "cut", resume=True)

    whole, cut = (load_file(tmp_path / name / "checkpoint" / "last.safetensors") for name in ("whole", "cut"))
    assert whole.keys() == cut.keys()
    assert all(torch.equal(whole[name], cut[name]) for name in whole)
    validation = [[line for line in losses(tmp_path / name) if line[0] == "validation"] for name in ("whole", "cut")]
    assert validation[0] == validation[1]


@pytest.mark.parametrize("dropped", [0, 20, 30])
def test_an_interruption_ends_an_evaluation_which_the_resumed_run_does_again(dropped: int, tmp_path: Path) -> None:
    request = tiny(*DROPOUT, "train.steps=30", "train.evaluate_every=10")
    assert run_training(request, tmp_path / "whole", resume=False)
    original, scored = CopyTask.validation, []

    def interrupt(self: CopyTask, step: int, shard: int, shards: int) -> Any:
        for batch in original(self, step, shard, shards):
            if step == dropped:
                os.kill(os.getpid(), signal.SIGTERM)
                scored.append(batch)
            yield batch

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CopyTask, "validation", interrupt)
        assert not run_training(request, tmp_path / "cut", resume=False)
    assert len(scored) == 1
    assert ("validation", dropped) not in [line[:2] for line in losses(tmp_path / "cut")]
    # a resumed run that was killed before its next checkpoint has left this
    RunDirectory(tmp_path / "cut").append_metrics({"kind": "validation", "step": dropped, "loss": 0.0})
    assert run_training(request, tmp_path / "cut", resume=True)
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")
    for name in ("last", "best"):
        whole, cut = (load_file(tmp_path / run / "checkpoint" / f"{name}.safetensors") for run in ("whole", "cut"))
        assert all(torch.equal(whole[weight], cut[weight]) for weight in whole)
    _, counters = read_checkpoint(tmp_path / "cut" / "checkpoint" / "last.safetensors")
    assert counters["unevaluated"] == 0


def test_metrics_beyond_the_checkpoint_are_forgotten_on_resuming(tmp_path: Path) -> None:
    run_training(tiny(), tmp_path, resume=False)
    run = RunDirectory(tmp_path)
    expected = losses(tmp_path)
    unfinished = [line for line in run.metrics() if line["kind"] in ("train", "validation")]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in unfinished))
    run.append_metrics({"kind": "train", "step": 99, "loss": 0.0, "seconds": 0.0})
    run_training(tiny(), tmp_path, resume=True)
    assert losses(tmp_path) == expected
    assert run.finished()


# not reformer: its hashes are random numbers, drawn once a micro-batch
@pytest.mark.parametrize("model", [name for name in EXPERIMENTS["copy"].models if name != "reformer"])
def test_accumulating_gradients_changes_nothing(model: str, tmp_path: Path) -> None:
    run_training(tiny(model=model), tmp_path / "one", resume=False)
    run_training(tiny("train.accumulate=4", model=model), tmp_path / "four", resume=False)
    for one, four in zip(losses(tmp_path / "one"), losses(tmp_path / "four"), strict=True):
        assert one[:2] == four[:2]
        assert one[2] == pytest.approx(four[2], rel=1e-3)


def test_two_processes_follow_the_loss_curve_of_one(tmp_path: Path) -> None:
    run_training(tiny(), tmp_path / "one", resume=False)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "momentum_transformer", "train", "copy", "--model", "adaptive-momentum", "--scale", "tiny"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "two")],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    for one, two in zip(losses(tmp_path / "one"), losses(tmp_path / "two"), strict=True):
        assert one[:2] == two[:2]
        assert one[2] == pytest.approx(two[2], rel=1e-4)
    assert json.loads((tmp_path / "two" / "provenance.json").read_text())["processes"] == 2


def test_an_existing_run_is_never_overwritten(tmp_path: Path) -> None:
    run_training(tiny(), tmp_path, resume=False)
    before = (tmp_path / "metrics.jsonl").read_text()
    with pytest.raises(RunError, match="holds a run already; add --resume"):
        run_training(tiny(), tmp_path, resume=False)
    with pytest.raises(RunError, match="started with other settings"):
        run_training(tiny("train.steps=30"), tmp_path, resume=True)
    assert (tmp_path / "metrics.jsonl").read_text() == before


def test_a_run_of_an_older_version_is_resumed_with_the_defaults_of_newer_settings(tmp_path: Path) -> None:
    run_training(tiny(), tmp_path, resume=False)
    stored = json.loads((tmp_path / "config.json").read_text())
    assert stored["config"]["train"].pop("final_rate") == TrainConfig().final_rate
    (tmp_path / "config.json").write_text(json.dumps(stored))
    assert run_training(tiny(), tmp_path, resume=True)


def test_a_run_goes_on_with_the_defaults_that_it_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_training(tiny(), tmp_path / "whole", resume=False)
    train_and_stop(tiny(), tmp_path / "cut")
    before, later = tiny().config, ("train.learning_rate=0.5", "train.steps=3")
    monkeypatch.setattr(Request, "config", property(lambda request: override(before, later)))
    capsys.readouterr()
    assert run_training(tiny(), tmp_path / "cut", resume=True)
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")
    rate, steps = before.train.learning_rate, before.train.steps
    said = f"began when defaults were others, and goes on with train.steps={steps}, train.learning_rate={rate}\n"
    assert said in capsys.readouterr().out
    assert run_training(tiny(), tmp_path / "cut", resume=True)  # it has ended, whatever the defaults are now
    assert capsys.readouterr().out == ""


def test_a_loss_that_becomes_nan_stops_with_the_step_and_the_last_good_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = CopyTask.score
    calls: list[bool] = []

    def poisoned(self: CopyTask, model: torch.nn.Module, batch: Any) -> Any:
        score = original(self, model, batch)
        calls.append(model.training)
        bad = model.training and sum(calls) == 13
        return type(score)(score.loss * (torch.nan if bad else 1), score.count, score.sums)

    monkeypatch.setattr(CopyTask, "score", poisoned)
    with pytest.raises(TrainingError, match=r"became nan at step 13; the last good checkpoint is .*last.safetensors"):
        run_training(tiny(), tmp_path, resume=False)
    _, progress = checkpoint.read_checkpoint(tmp_path / "checkpoint" / "last.safetensors")
    assert progress["step"] == 10


def test_a_full_disk_leaves_the_previous_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_training(tiny(), tmp_path, resume=False)
    path = tmp_path / "checkpoint" / "last.safetensors"
    before = path.read_bytes()

    def full(tensors: Any, temporary: Path, metadata: Any) -> None:
        Path(temporary).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(CheckpointError, match=r"No space left on device; the checkpoint before it is safe"):
        checkpoint.save_checkpoint(path, torch.nn.Linear(2, 2).state_dict(), None, {})
    assert path.read_bytes() == before
    assert not list(path.parent.glob("*.writing"))


def test_damaged_checkpoints_are_refused_in_one_line(tmp_path: Path) -> None:
    run_training(tiny(), tmp_path, resume=False)
    path = tmp_path / "checkpoint" / "best.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match="is damaged or not one of our checkpoints"):
        run_evaluation(tmp_path, "best")
    path.write_bytes(b"")
    with pytest.raises(CheckpointError, match="is damaged or not one of our checkpoints"):
        run_evaluation(tmp_path, "best")
    path.unlink()
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        run_evaluation(tmp_path, "best")
    model = torch.nn.Linear(2, 2)
    checkpoint.save_checkpoint(path, model.state_dict(), None, {"step": 0})
    with pytest.raises(CheckpointError, match=r"does not fit this model: \d+ tensors are missing"):
        run_evaluation(tmp_path, "best")


def test_damaged_run_directories_are_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"is not a run directory: it has no config.json"):
        run_evaluation(tmp_path, "best")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(RunError, match=r"config.json cannot be read"):
        run_evaluation(tmp_path, "best")
    (tmp_path / "config.json").write_text('{"format": 99}')
    with pytest.raises(RunError, match="written by a newer version"):
        run_evaluation(tmp_path, "best")
    (tmp_path / "config.json").write_text('{"format": 1}')
    with pytest.raises(RunError, match=r"config.json has no 'experiment'"):
        run_evaluation(tmp_path, "best")


def test_evaluating_a_run_needs_its_directory_only(tmp_path: Path) -> None:
    run_training(tiny(), tmp_path / "a", resume=False)
    (tmp_path / "a").rename(tmp_path / "b")
    metrics = run_evaluation(tmp_path / "b", "last")
    assert set(metrics) == {"loss", "accuracy"}
    assert 0 < metrics["loss"] < 10
    assert metrics == run_evaluation(tmp_path / "b", "last")


def test_gradients_are_clipped_tensor_by_tensor_or_together() -> None:
    config = tiny().config.train
    parameters = [torch.nn.Parameter(torch.zeros(2)) for _ in range(2)]
    for parameter, value in zip(parameters, (3.0, 0.1), strict=True):
        parameter.grad = torch.full((2,), value)
    clip_gradients(parameters, config)
    norms = [p.grad.norm().item() for p in parameters if p.grad is not None]
    assert norms == pytest.approx([1.0, 0.1 * 2**0.5], rel=1e-5)
    parameters[0].grad = torch.full((2,), 3.0)
    clip_gradients(parameters, type(config)(**(vars(config) | {"clip": "global"})))
    total = torch.cat([p.grad for p in parameters if p.grad is not None]).norm().item()
    assert total == pytest.approx(1.0, rel=1e-5)


def test_the_protocol_drops_the_rate_after_3000_of_10000_steps() -> None:
    config = Request("copy", "momentum", "paper").config.train
    assert [learning_rate(step, config) for step in (0, 2999, 3000, 9999)] == pytest.approx([1e-3, 1e-3, 1e-4, 1e-4])


def test_paper_scale_has_the_papers_size() -> None:
    request = Request("copy", "linear", "paper")
    model = EXPERIMENTS["copy"].task(request.config, 0).model
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(3.16e6, rel=0.01)


def test_bfloat16_training_learns_too(tmp_path: Path) -> None:
    run_training(tiny("train.precision=bfloat16", "train.learning_rate=0.01"), tmp_path, resume=False)
    validation = [loss for kind, _, loss in losses(tmp_path) if kind == "validation"]
    assert validation[-1] < validation[0]


def test_metrics_also_go_to_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    run_training(tiny(), tmp_path, resume=False)
    assert list((tmp_path / "tensorboard").glob("events.out.tfevents.*"))


def test_a_process_that_is_gone_is_one_line_and_each_says_which_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(values: torch.Tensor) -> None:
        raise RuntimeError("Connection closed by peer")

    monkeypatch.setattr(torch.distributed, "all_reduce", fail)
    with pytest.raises(WorldError, match=r"another process is gone, .* \(Connection closed by peer\)"):
        World(0, 2, torch.device("cpu")).any(False)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(SystemExit):
        main(["evaluate", str(tmp_path / "missing")])
    assert capsys.readouterr().err.startswith("momentum: rank 1: ")
    with pytest.raises(SystemExit):
        main(["trian"])
    assert capsys.readouterr().err == ""  # what all processes find is said by the first alone


def test_processes_with_fewer_batches_wait_and_all_drop_one_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ranks, flag, taken = threads_for_processes(2, monkeypatch), Interruption(), dict[int, list[int]]()

    def work() -> None:
        rank = ranks.mine.rank
        taken[rank] = list(until_interrupted(range(1 + 2 * rank), World(rank, 2, torch.device("cpu")), flag))

    ranks.run(work)
    assert taken == {0: [0], 1: [0, 1, 2]}
    flag.is_set = True
    with pytest.raises(DroppedError):
        ranks.run(work)
