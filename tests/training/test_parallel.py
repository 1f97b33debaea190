"""Many processes train what one trains: weights over them, sequences over them, checkpoints for any number of them."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from momentum_transformer.experiments import EXPERIMENTS
from momentum_transformer.experiments.copy import CopyTask
from momentum_transformer.experiments.runs import Request, run_training
from momentum_transformer.training.checkpoint import CheckpointError
from momentum_transformer.training.config import TrainConfig
from momentum_transformer.training.distributed import World, WorldError, join_world
from momentum_transformer.training.loop import train
from momentum_transformer.training.optimizers import clip_gradients, make_optimizer
from momentum_transformer.training.run_directory import RunDirectory
from momentum_transformer.training.sharded import load_shards, newest, save_shards, shard, whole_weights

from ..processes import run_together
from .test_loop import losses

FSDP = "train.parallel=fsdp"
CASES = {
    "fsdp": Request("copy", "adaptive-momentum", "tiny", 0, (FSDP, "train.accumulate=2")),
    "fsdp-context": Request("recall", "momentum-delta", "tiny", 0, (FSDP, "train.context=2")),
    "context": Request("copy", "gated-momentum", "tiny", 0, ("train.context=2",)),
    "text-context": Request("text", "gated-delta", "tiny", 0, ("train.context=2",)),
    "text-fsdp": Request("text", "momentum", "tiny", 0, (FSDP, "train.steps=3")),  # the first one writes samples
}
CUT = Request("copy", "momentum-delta", "tiny", 0, (FSDP,))
CUT_AT = 12


def alone(request: Request) -> Request:
    settings = tuple(setting for setting in request.settings if "context" not in setting)
    return Request(request.experiment, request.model, request.scale, request.seed, settings)


def same_curve(one: Path, other: Path) -> None:
    for a, b in zip(losses(one), losses(other), strict=True):
        assert a[:2] == b[:2]
        assert a[2] == pytest.approx(b[2], rel=1e-4)


def train_on_two(folder: Path, text: Path) -> None:
    for name, request in CASES.items():
        run_training(with_text(request, text), folder / name, resume=False)
    train_and_stop(folder / "cut")


def train_and_stop(run: Path) -> None:
    original = CopyTask.batch

    def interrupt(self: CopyTask, step: int, shard: int, shards: int) -> Any:
        if step == CUT_AT:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(self, step, shard, shards)

    CopyTask.batch = interrupt  # type: ignore[method-assign]
    assert not run_training(CUT, run, resume=False)


def carry_on_with_four(run: Path) -> None:
    compare_with_files(run)
    assert run_training(CUT, run, resume=True)


def compare_with_files(run: Path) -> None:
    """Weights and moments after loading are those in the files, bit by bit."""
    path = newest(RunDirectory(run).shards)
    assert path is not None
    with join_world() as world:
        model = CopyTask(CUT.config, seed=5).model
        shard(model, world)
        optimizer = make_optimizer(model.parameters(), CUT.config.train)
        assert load_shards(path, model, optimizer, world)["step"] == CUT_AT + 1
        found = {f"model.{name}": tensor for name, tensor in whole_weights(model).items()}
        for name, parameter in model.named_parameters():
            for key, value in optimizer.state[parameter].items():
                whole: Tensor = value.full_tensor() if hasattr(value, "full_tensor") else value
                found[f"optimizer.{name}.{key}"] = whole.reshape(1) if whole.ndim == 0 else whole
    expected: dict[str, list[Tensor]] = {}
    files = sorted(path.glob("*.safetensors"))
    assert len(files) == 2  # one of each process that wrote them
    for file in files:
        for name, tensor in load_file(file).items():
            expected.setdefault(name, []).append(tensor)
    assert found.keys() == expected.keys()
    for name, parts in expected.items():
        assert torch.equal(found[name], torch.cat(parts)), name


def with_text(request: Request, text: Path) -> Request:
    """Of the text experiment: with a text that is there."""
    settings = request.settings + ((f"data.source={text}",) if request.experiment == "text" else ())
    return Request(request.experiment, request.model, request.scale, request.seed, settings)


def test_two_processes_follow_one_and_one_carries_on(tmp_path: Path) -> None:
    text = tmp_path / "some.txt"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 400)
    run_together(train_on_two, 2, tmp_path, tmp_path, text)
    for name, request in CASES.items():
        run_training(with_text(alone(request), text), tmp_path / f"{name} alone", resume=False)
        same_curve(tmp_path / f"{name} alone", tmp_path / name)
        one, two = (load_file(RunDirectory(tmp_path / run).last) for run in (f"{name} alone", name))
        for weight in (key for key in one if key.startswith("model.")):
            torch.testing.assert_close(two[weight], one[weight], rtol=1e-3, atol=1e-4)

    shards = RunDirectory(tmp_path / "cut").shards
    assert newest(shards) == shards / str(CUT_AT + 1)
    compare_with_files(tmp_path / "cut")
    assert run_training(CUT, tmp_path / "cut", resume=True)
    run_training(CUT, tmp_path / "never stopped", resume=False)
    same_curve(tmp_path / "never stopped", tmp_path / "cut")


@pytest.mark.slow
def test_four_processes_carry_on_what_two_have_saved(tmp_path: Path) -> None:
    run_together(train_and_stop, 2, tmp_path, tmp_path / "cut")
    run_together(carry_on_with_four, 4, tmp_path, tmp_path / "cut")
    run_training(CUT, tmp_path / "never stopped", resume=False)
    same_curve(tmp_path / "never stopped", tmp_path / "cut")


def meet(rank: int, attempt: int) -> None:
    """In a forked child: join as torchrun's attempt of this number; then end without a word, as if killed."""
    signal.alarm(60)
    time.sleep(0.5 * rank)  # so that the first one could find what is left of the second
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "TORCHELASTIC_RESTART_COUNT": str(attempt)}
    code = 1
    try:
        with join_world() as world:
            code = 0 if world.sum(torch.ones(())).item() == 2 else 1
            os._exit(code)
    finally:
        os._exit(code)


def test_a_restart_does_not_look_for_those_that_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchrun keeps one store for all attempts, with the addresses of the first."""
    store: Any = vars(torch.distributed)["TCPStore"]("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    for name, value in (
        ("TORCHELASTIC_USE_AGENT_STORE", "True"),
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", str(store.port)),
        ("WORLD_SIZE", "2"),
    ):
        monkeypatch.setenv(name, value)
    for attempt in range(3):
        children = []
        for rank in range(2):
            child = os.fork()
            if child == 0:
                meet(rank, attempt)
            children.append(child)
        assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]


def test_processes_that_cannot_meet_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(WorldError, match=r"^the processes could not meet: .*RANK"), join_world():
        pass


def clip_on_two(config: TrainConfig) -> None:
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    plain, sharded = (torch.nn.Linear(3, 5) for _ in range(2))
    sharded.load_state_dict(plain.state_dict())
    fully_shard(sharded)
    for model in (plain, sharded):
        (10 * model(torch.ones(2, 3))).square().sum().backward()
        clip_gradients(model.parameters(), config)
    for one, two in zip(plain.parameters(), sharded.parameters(), strict=True):
        assert one.grad is not None
        assert two.grad is not None
        torch.testing.assert_close(two.grad.full_tensor(), one.grad)  # type: ignore[attr-defined]


def clip_both_ways() -> None:
    for clip in ("tensor", "global"):
        clip_on_two(TrainConfig(clip=clip, clip_norm=0.1))


@pytest.mark.slow
def test_gradient_norms_are_those_of_all_shards(tmp_path: Path) -> None:
    run_together(clip_both_ways, 2, tmp_path)


def save_some(folder: Path, step: int = 3) -> tuple[World, torch.nn.Module, torch.optim.Optimizer]:
    world, model = World(0, 1, torch.device("cpu")), torch.nn.Linear(2, 3)
    optimizer = make_optimizer(model.parameters(), TrainConfig())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    save_shards(folder, model, optimizer, {"step": step}, world)
    return world, model, optimizer


def with_tensors(path: Path, changed: dict[str, Tensor]) -> None:
    """The checkpoint of one process, with other tensors in it."""
    (file,) = path.glob("*.safetensors")
    tensors = load_file(file)
    with safe_open(file, "pt") as opened:
        said = opened.metadata()
    save_file(tensors | changed, file, said)


def test_a_checkpoint_of_shards_counts_when_it_is_whole(tmp_path: Path) -> None:
    world, model, optimizer = save_some(tmp_path)
    (tmp_path / "7").mkdir()  # killed while it was written
    assert newest(tmp_path) == tmp_path / "3"
    save_shards(tmp_path, model, optimizer, {"step": 5}, world)
    assert [path.name for path in tmp_path.iterdir()] == ["5"]
    assert newest(tmp_path / "nowhere") is None


def test_bad_shards_are_one_line(tmp_path: Path) -> None:
    world, model, optimizer = save_some(tmp_path)
    with pytest.raises(CheckpointError, match="does not fit this model: "):
        load_shards(tmp_path / "3", torch.nn.Linear(2, 3, bias=False), optimizer, world)
    for file in (tmp_path / "3").glob("*.safetensors"):
        file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(CheckpointError, match="is damaged or not one of our checkpoints") as raised:
        load_shards(tmp_path / "3", model, optimizer, world)
    assert "\n" not in str(raised.value)
    torch.nn.init.constant_(model.weight, torch.inf)
    with pytest.raises(CheckpointError, match=r"model.weight is not finite after step 4.* safe in .*/3\."):
        save_shards(tmp_path, model, optimizer, {"step": 4}, world)


def test_shards_of_another_size_are_one_line(tmp_path: Path) -> None:
    """DCP tells of them by an exception that is no Exception, in many lines."""
    world, model, optimizer = save_some(tmp_path)
    with_tensors(tmp_path / "3", {"optimizer.weight.step": torch.ones(2)})
    with pytest.raises(CheckpointError, match=r"is damaged .*Size mismatch .* for optimizer.weight.step") as raised:
        load_shards(tmp_path / "3", model, optimizer, world)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("step", torch.tensor([-1.0])),
        ("step", torch.tensor([4.0])),
        ("exp_avg", torch.tensor([[0.0, torch.nan], [0.0, 0.0], [0.0, 0.0]])),
        ("exp_avg_sq", -torch.ones(3, 2)),
    ],
)
def test_impossible_moments_of_shards_are_refused(name: str, value: Tensor, tmp_path: Path) -> None:
    world, model, optimizer = save_some(tmp_path)
    with_tensors(tmp_path / "3", {f"optimizer.weight.{name}": value})
    with pytest.raises(CheckpointError, match="3 holds impossible moments of weight; delete it, or train again"):
        load_shards(tmp_path / "3", model, optimizer, world)


def test_shards_without_moments_are_refused_after_the_first_step(tmp_path: Path) -> None:
    world, model, _ = save_some(tmp_path)
    unused = make_optimizer(model.parameters(), Request("copy", "linear", "tiny").config.train)
    save_shards(tmp_path, model, unused, {"step": 0}, world)
    assert load_shards(tmp_path / "0", model, unused, world) == {"step": 0}
    save_shards(tmp_path, model, unused, {"step": 3}, world)
    with pytest.raises(CheckpointError, match="has weights but no moments after step 3"):
        load_shards(tmp_path / "3", model, unused, world)


def test_ctrl_c_while_shards_are_read_says_nothing_about_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def press(*_: Any) -> None:
        raise KeyboardInterrupt

    world, model, optimizer = save_some(tmp_path)
    monkeypatch.setattr("torch.distributed.checkpoint.hf_storage.HuggingFaceStorageReader.read_data", press)
    with pytest.raises(KeyboardInterrupt):
        load_shards(tmp_path / "3", model, optimizer, world)


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(CheckpointError, match=r"could not write .*file/3: "):
        save_some(tmp_path / "file")


def test_what_cannot_be_shared_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(WorldError, match=r"^train.context=3 needs a multiple of 3 processes, not 1; start"):
        run_training(Request("copy", "linear", "tiny", 0, ("train.context=3",)), tmp_path / "a", resume=False)
    request = Request("digits", "linear", "tiny", 0)
    task = EXPERIMENTS["digits"].task(request.config, 0, None)
    for world, match in (
        (World(0, 2, torch.device("cpu"), 2), "the sequences of this experiment cannot be split"),
        (World(0, 64, torch.device("cpu")), "is too small for 64 processes"),
    ):
        with pytest.raises(WorldError, match=match):
            train(task, request.config.train, run=RunDirectory(tmp_path), world=world, seed=0, title="")


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"parallel": "fsdp", "compile": True}, "^train.parallel=fsdp does not go with train.compile"),
        ({"parallel": "fsdp", "precision": "float16"}, "^train.parallel=fsdp knows no float16"),
        ({"context": 2, "compile": True}, "^train.context above 1 does not go with train.compile"),
    ],
)
def test_settings_that_do_not_go_together(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        TrainConfig(**settings)
