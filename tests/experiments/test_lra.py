"""Long Range Arena: the published protocol, both fidelities, and training that does not depend on how it is cut."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from momentum_transformer.commands.reproduce import run_study
from momentum_transformer.data.folder import DataError
from momentum_transformer.experiments import EXPERIMENTS, REPRODUCTIONS
from momentum_transformer.experiments.configuration import ConfigurationError, from_json, paths, to_json
from momentum_transformer.experiments.lra.lra_scales import (
    LRA_MODELS,
    PAPER_LRA_MODELS,
    PAPER_TABLE,
    TASKS,
    LraConfig,
    Protocol,
    lra_config,
)
from momentum_transformer.experiments.lra.lra_task import LraTask
from momentum_transformer.experiments.runs import Request, load_task, run_evaluation, run_training
from momentum_transformer.experiments.study_runs import Plan, requests
from momentum_transformer.layers.presets import PaperBlock
from momentum_transformer.layers.situation import Situation
from momentum_transformer.training.run_directory import RunDirectory
from tests.data.small_sets import write_arena

RELEASED = ("fidelity=released",)


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_arena(tmp_path_factory.mktemp("data"))


def make(task: str, arena: Path, model: str = "momentum", settings: tuple[str, ...] = ()) -> LraTask:
    made = EXPERIMENTS[task].task(Request(task, model, "tiny", 0, settings).config, 0, arena)
    assert isinstance(made, LraTask)
    return made


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("scale", ["tiny", "small", "paper"])
def test_configurations_survive_json_at_either_fidelity(task: str, scale: str) -> None:
    for model in LRA_MODELS:
        for settings in ((), RELEASED):
            given = Request(task, model, scale, 0, settings).config
            assert from_json(LraConfig, json.loads(json.dumps(to_json(given)))) == given


@pytest.mark.parametrize(
    ("task", "length", "batch", "steps", "warmup", "every"),
    [
        ("lra-listops", 2048, 32, 5_000, 1_000, 50),
        ("lra-text", 4096, 32, 20_000, 8_000, 500),
        ("lra-retrieval", 4096, 32, 30_000, 800, 300),
        ("lra-image", 1024, 256, 35_000, 175, 175),
        ("lra-pathfinder", 1024, 256, 62_400, 312, 312),
    ],
)
def test_paper_scale_is_the_published_protocol(
    task: str, length: int, batch: int, steps: int, warmup: int, every: int
) -> None:
    config = lra_config(task, "momentum", "paper")
    train = config.train
    assert config.data.positions == length
    assert (train.batch_size, train.steps, round(train.warmup * steps), train.evaluate_every) == (
        batch,
        steps,
        warmup,
        every,
    )
    assert (train.optimizer, train.learning_rate, train.betas, train.epsilon, train.weight_decay, train.clip) == (
        "adamw",
        1e-4,
        (0.9, 0.999),
        1e-6,
        0.0,
        "none",
    )
    assert (train.schedule, train.select, train.precision) == ("one-cycle", "accuracy", "mixed")
    model = config.model
    assert (model.depth, model.width, model.heads, model.feedforward, model.dropout) == (2, 64, 2, 128, 0.1)
    assert model.preset == PaperBlock("pre", "gelu")


@pytest.mark.parametrize(
    ("task", "parameters"),
    [
        ("lra-listops", 209_802),
        ("lra-text", 370_562),
        ("lra-retrieval", 395_138),
        ("lra-image", 174_986),
        ("lra-pathfinder", 173_954),
    ],
)
def test_paper_models_have_the_published_sizes(task: str, parameters: int) -> None:
    model = EXPERIMENTS[task].task(lra_config(task, "adaptive-momentum", "paper"), 0).model
    assert sum(p.numel() for p in model.parameters()) == parameters


def test_coefficients_are_those_of_table_1() -> None:
    table = {
        "lra-listops": (0.1, 0.6, 0.4),
        "lra-text": (0.6, 2.0, 0.001),
        "lra-retrieval": (0.6, 1.0, 0.5),
        "lra-image": (0.9, 0.9, 0.001),
        "lra-pathfinder": (0.3, 0.1, 0.8),
    }
    for task, (beta, gamma, step) in table.items():
        for scale in ("tiny", "small", "paper"):
            model = lra_config(task, "adaptive-momentum", scale).model
            settings = paths(model)
            assert [settings[name] for name in ("beta", "gamma", "connection_gamma")] == [beta, gamma, step]
            assert model.residual == "adaptive"


def test_the_papers_averages_are_those_of_table_4() -> None:
    averages = {"softmax": 58.70, "linear": 54.67, "performer": 53.63, "reformer": 55.04, "linformer": 55.59}
    averages |= {"momentum": 55.68, "adaptive-momentum": 56.04}
    assert {model: round(float(np.mean(row)), 2) for model, row in PAPER_TABLE.items()} == averages


def test_released_turns_every_switch_and_paper_none() -> None:
    ours, theirs = (Request("lra-text", "adaptive-momentum", "paper", 0, chosen).config for chosen in ((), RELEASED))
    assert ours.protocol == Protocol(padded=False, mask_zeros=False, validate_on_test=False)
    assert theirs.protocol == Protocol(padded=True, mask_zeros=True, validate_on_test=True)
    for field, paper, released in (
        ("weighting", "relative", "terminal"),
        ("denominator", True, False),
        ("scale_by_length", False, True),
        ("rule", "paper", "released"),
        ("delta", 1e-3, 1e-4),
    ):
        assert (paths(ours.model)[field], paths(theirs.model)[field]) == (paper, released)
    assert (ours.train.cycle_beta1, theirs.train.cycle_beta1) == (False, True)


def test_switches_can_be_turned_one_by_one() -> None:
    config = Request("lra-image", "linear", "tiny", 0, ("protocol.mask_zeros=true",)).config
    assert config.protocol == Protocol(mask_zeros=True)
    assert config.model.mixer.denominator
    with pytest.raises(ConfigurationError, match="fidelity must be one of 'paper', 'released', not 'both'"):
        _ = Request("lra-image", "linear", "tiny", 0, ("fidelity=both",)).config
    with pytest.raises(ConfigurationError, match="unknown setting 'fidelity'"):
        _ = Request("copy", "linear", "tiny", 0, RELEASED).config


@pytest.mark.parametrize("model", ["linear", "momentum"])
def test_released_attention_is_the_authors_formula(model: str) -> None:
    config = Request("lra-image", model, "paper", 0, RELEASED).config.model
    q, k, v = torch.randn(3, 2, 2, 17, 8, dtype=torch.float64).unbind(0)
    mask = torch.rand(2, 17) > 0.3
    y, _ = config.make_mixer()(q, k, v, Situation(causal=False, key_mask=mask))
    real = mask[:, None, :, None]
    features = [(torch.nn.functional.elu(x) + 1) / math.sqrt(math.sqrt(17)) for x in (q, k)]
    weight = torch.ones(17, dtype=torch.float64)
    if model == "momentum":
        beta, gamma = config.mixer.beta, config.mixer.gamma
        weight = gamma * (1 - beta ** (17.0 - torch.arange(17, dtype=torch.float64))) / (1 - beta)
    expected = features[0] @ ((features[1] * real * weight[:, None]).transpose(-1, -2) @ (v * real))
    assert torch.allclose(y, torch.where(real, expected, 0), atol=1e-12)


def test_released_batches_are_padded_and_black_pixels_masked(arena: Path) -> None:
    (part, *_) = make("lra-listops", arena, settings=RELEASED).batch(0, 0, 1)
    tokens, mask = part.inputs
    assert tokens is not None
    assert mask is not None
    assert tokens.shape[1] == 64
    assert torch.equal(mask, tokens != 0)
    (part,) = make("lra-image", arena, settings=RELEASED).batch(0, 0, 1)
    tokens, mask = part.inputs
    assert tokens is not None
    assert mask is not None
    assert (tokens == 0).any()
    assert torch.equal(mask, tokens != 0)
    (part,) = make("lra-image", arena).batch(0, 0, 1)
    assert part.inputs[1] is None  # every pixel exists


def test_only_released_validates_text_on_its_test_set(arena: Path) -> None:
    ours, theirs = (make("lra-text", arena, settings=settings).splits for settings in ((), RELEASED))
    assert np.array_equal(theirs.validation[0].starts, theirs.test[0].starts)
    assert not np.shares_memory(ours.validation[0].tokens, ours.test[0].tokens)


@pytest.mark.parametrize("task", TASKS)
def test_every_task_trains_is_tested_and_says_where_its_data_came_from(task: str, arena: Path, tmp_path: Path) -> None:
    assert run_training(Request(task, "momentum", "tiny"), tmp_path, resume=False, data_dir=arena)
    lines = RunDirectory(tmp_path).metrics()
    (tested,) = (line for line in lines if line["kind"] == "test")
    assert 0 <= tested["accuracy"] <= 1
    origin = json.loads((tmp_path / "provenance.json").read_text())["data"]
    assert origin["directory"] == str(arena)
    assert origin["examples"]["test"] == len(make(task, arena).splits.test[0])
    labels = make(task, arena).splits.test[0].labels
    assert origin["majority"] <= np.bincount(labels).max() / len(labels)
    assert run_evaluation(tmp_path, "best", split="test", data_dir=arena)["accuracy"] == tested["accuracy"]


@pytest.mark.grid
@pytest.mark.parametrize("settings", [(), RELEASED], ids=["paper", "released"])
@pytest.mark.parametrize("model", LRA_MODELS)
def test_every_model_trains(model: str, settings: tuple[str, ...], tmp_path: Path) -> None:
    assert run_training(Request("lra-listops", model, "tiny", 0, settings), tmp_path, resume=False)


@pytest.mark.parametrize("model", ["softmax", "linformer", "performer", "adaptive-momentum"])
@pytest.mark.parametrize("task", ["lra-listops", "lra-retrieval"])
def test_cutting_a_batch_into_parts_of_like_lengths_changes_no_result(task: str, model: str, arena: Path) -> None:
    results = []
    for buckets in (1, 3):
        made = make(task, arena, model, (f"data.buckets={buckets}",))
        made.model.double().eval()
        batch = made.batch(2, 0, 1)
        assert len(batch) == buckets
        score = made.score(made.model, batch)
        gradients = torch.autograd.grad(score.loss, list(made.model.parameters()), allow_unused=True)
        results.append((score.loss, [g for g in gradients if g is not None]))
    (one, whole), (three, cut) = results
    assert one.item() == pytest.approx(three.item(), rel=1e-6)
    for a, b in zip(whole, cut, strict=True):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_evaluation_sees_every_example_once_however_it_is_shared(shards: int, arena: Path) -> None:
    made = make("lra-retrieval", arena)
    labels: list[int] = []
    for shard in range(shards):
        for batch in made.test(shard, shards):
            for part in batch:
                labels += part.labels.tolist()
    assert sorted(labels) == sorted(made.splits.test[0].labels.tolist())


def test_shards_share_a_batch(arena: Path) -> None:
    made = make("lra-listops", arena)
    whole = sum(int(made.count(made.batch(1, shard, 2))) for shard in range(2))
    assert whole == made.config.train.batch_size
    labels = [torch.cat([part.labels for part in made.batch(1, s, n)]).tolist() for s, n in ((0, 1), (0, 2), (1, 2))]
    assert sorted(labels[0]) == sorted(labels[1] + labels[2])


@pytest.mark.parametrize("model", ["reformer", "performer", "adaptive-momentum"])
def test_resuming_is_bit_identical(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = Request("lra-listops", model, "tiny", 0, ("model.dropout=0.1", "model.redraw=5"))
    assert run_training(request, tmp_path / "whole", resume=False)
    original = LraTask.batch

    def stop(self: LraTask, step: int, shard: int, shards: int) -> Any:
        if step == 5:
            raise KeyboardInterrupt
        return original(self, step, shard, shards)

    monkeypatch.setattr(LraTask, "batch", stop)
    with pytest.raises(KeyboardInterrupt):
        run_training(request, tmp_path / "cut", resume=False)
    monkeypatch.setattr(LraTask, "batch", original)
    assert run_training(request, tmp_path / "cut", resume=True)
    whole, cut = (load_file(tmp_path / name / "checkpoint" / "last.safetensors") for name in ("whole", "cut"))
    assert all(torch.equal(whole[name], cut[name]) for name in whole)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["reformer", "performer", "linformer"])
def test_two_processes_follow_one(model: str, tmp_path: Path) -> None:
    settings = ("train.accumulate=1", "train.steps=3")
    run_training(Request("lra-listops", model, "tiny", 0, settings), tmp_path / "one", resume=False)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "momentum_transformer", "train", "lra-listops", "--model", model, "--scale", "tiny"]
    command += [word for setting in settings for word in ("--set", setting)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*command, "--out", str(tmp_path / "two")], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    one, two = (RunDirectory(tmp_path / name).metrics() for name in ("one", "two"))
    for a, b in zip(one, two, strict=True):
        assert a["kind"] == b["kind"]
        if model != "reformer" and "loss" in a:  # whose hashes are drawn once a process
            assert a["loss"] == pytest.approx(b["loss"], rel=1e-4)


def test_the_best_checkpoint_is_the_most_accurate_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = LraTask.score
    evaluations: list[int] = []

    def rigged(self: LraTask, model: torch.nn.Module, batch: Any) -> Any:
        score = original(self, model, batch)
        if model.training:
            return score
        evaluations.append(len(evaluations))
        accuracy = {0: 0.2, 1: 0.9, 2: 0.4}.get(len(evaluations) - 1, 0.0)
        return replace(score, sums={"accuracy": score.count * accuracy})  # while the loss says otherwise

    monkeypatch.setattr(LraTask, "score", rigged)
    run_training(Request("lra-listops", "linear", "tiny"), tmp_path, resume=False)
    (end,) = (line for line in RunDirectory(tmp_path).metrics() if line["kind"] == "end")
    assert end["best_step"] == 3


def test_missing_data_is_said_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="aclImdb is not in"):
        run_training(Request("lra-text", "linear", "tiny"), tmp_path / "run", resume=False, data_dir=tmp_path)
    assert not (tmp_path / "run").exists()


def test_the_study_has_five_tasks_and_every_model_of_the_paper(tmp_path: Path) -> None:
    wanted = {(task, model) for task in TASKS for model in PAPER_LRA_MODELS}
    for name in ("lra", "lra-released"):
        assert {(r.experiment, r.model) for r, _ in requests(REPRODUCTIONS[name], "tiny", 1)} == wanted


def test_a_study_runs_in_this_process_and_carries_on(arena: Path, tmp_path: Path) -> None:
    study = replace(
        REPRODUCTIONS["lra"], others=("lra-text",), variants=tuple(v for v in REPRODUCTIONS["lra"].variants[4:6])
    )
    threads = torch.get_num_threads()
    assert run_study(Plan(study, "tiny", 1, tmp_path, data_dir=arena))
    assert torch.get_num_threads() == threads
    for task in ("lra-listops", "lra-text"):
        for model in ("linear", "momentum"):
            assert RunDirectory(tmp_path / task / model / "tiny-seed0").finished()
    assert run_study(Plan(study, "tiny", 1, tmp_path, data_dir=arena))


def test_a_run_can_be_loaded_without_its_data(arena: Path, tmp_path: Path) -> None:
    run_training(Request("lra-text", "linformer", "tiny"), tmp_path, resume=False, data_dir=arena)
    task, request, _ = load_task(tmp_path, data_dir=tmp_path / "nowhere")
    assert request.model == "linformer"
    assert sum(p.numel() for p in task.model.parameters()) > 0


def test_every_switch_of_the_released_protocol_is_explained() -> None:
    page = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text()
    ours, theirs = (paths(Request("lra-text", "adaptive-momentum", "paper", 0, s).config) for s in ((), RELEASED))
    turned = {path for path, value in ours.items() if theirs[path] != value} - {"fidelity"}
    assert {"model.weighting", "model.rule", "protocol.padded"} <= turned
    assert all(f"`{path}`" in page for path in turned), turned
