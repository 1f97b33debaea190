"""Picture experiments: the paper's protocol, every byte scored, and the test split only at the end."""

import json
import math
import shutil
from pathlib import Path

import pytest
import torch

from momentum_transformer.data.folder import DataError, data_root
from momentum_transformer.experiments import EXPERIMENTS, REPRODUCTIONS
from momentum_transformer.experiments.configuration import ConfigurationError, from_json, to_json
from momentum_transformer.experiments.model_config import MomentumConnection
from momentum_transformer.experiments.named_models import FAMILY
from momentum_transformer.experiments.pictures.picture_scales import PAPER_TABLES, PictureConfig
from momentum_transformer.experiments.pictures.picture_task import PICTURE_MODELS, PictureTask
from momentum_transformer.experiments.runs import Request, load_task, run_evaluation, run_training
from momentum_transformer.models.logistic_mixture import mixture_log_likelihood
from momentum_transformer.training.run_directory import RunDirectory, RunError
from momentum_transformer.training.task import HasTest

SETS = ("digits", "mnist", "fashion", "cifar10")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("digits") / "run"
    assert run_training(Request("digits", "momentum", "tiny"), out, resume=False)
    return out


def lines(path: Path, kind: str) -> list[dict[str, float]]:
    return [line for line in RunDirectory(path).metrics() if line["kind"] == kind]


def test_training_ends_with_the_test_split_and_samples(trained: Path) -> None:
    (test,) = lines(trained, "test")
    (end,) = lines(trained, "end")
    assert RunDirectory(trained).finished()
    assert test["step"] == end["best_step"]
    assert test["bits_per_dim"] == pytest.approx(test["loss"] / math.log(2))
    validation = [line["loss"] for line in lines(trained, "validation")]
    assert validation[-1] < validation[0]
    pytest.importorskip("PIL", reason="pillow is not installed")
    assert (trained / "samples" / "grid.png").stat().st_size > 100


def test_the_test_split_is_scored_over_every_byte_of_every_image(trained: Path) -> None:
    task, _, _ = load_task(trained)
    assert isinstance(task, PictureTask)
    images = task.test_images
    assert images.shape == (297, 16)
    with torch.no_grad():
        nats = -mixture_log_likelihood(task.pixel_model.eval()(images), images).double()
    (test,) = lines(trained, "test")
    assert test["bits_per_dim"] == pytest.approx(nats.mean().item() / math.log(2), rel=1e-5)
    assert test["bits_per_dim_paper"] == pytest.approx(nats[:, 1:].mean().item() / math.log(2), rel=1e-5)


def test_evaluating_the_test_split_again_gives_the_same_and_is_noted(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "run")
    metrics = run_evaluation(tmp_path / "run", "best", split="test")
    first, second = lines(tmp_path / "run", "test")
    assert first == second
    assert metrics["bits_per_dim"] == first["bits_per_dim"]
    last = run_evaluation(tmp_path / "run", "last", split="validation")
    assert last["loss"] == pytest.approx(lines(trained, "validation")[-1]["loss"], rel=1e-6)
    with pytest.raises(ConfigurationError, match="unknown split 'tests'; did you mean 'test'"):
        run_evaluation(tmp_path / "run", "best", split="tests")


def test_resuming_scores_the_test_split_anew(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "run")
    assert run_training(Request("digits", "momentum", "tiny"), tmp_path / "run", resume=True)
    assert lines(tmp_path / "run", "test") == lines(trained, "test")


def test_a_run_without_a_test_split_says_so(tmp_path: Path) -> None:
    run_training(Request("copy", "linear", "tiny"), tmp_path, resume=False)
    with pytest.raises(RunError, match="is a run of copy, which has no test split"):
        run_evaluation(tmp_path, "best", split="test")


def test_the_data_folder_is_not_part_of_a_run_but_is_remembered(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MOMENTUM_DATA", raising=False)
    run_training(Request("digits", "momentum", "tiny"), tmp_path / "run", resume=False, data_dir=tmp_path)
    assert (tmp_path / "run" / "config.json").read_text() == (trained / "config.json").read_text()
    data = json.loads((tmp_path / "run" / "provenance.json").read_text())["data"]
    assert data["directory"] == str(tmp_path)
    assert data["images"] == {"training": 1436, "validation": 64, "test": 297}
    task, _, _ = load_task(tmp_path / "run")
    assert isinstance(task, PictureTask)
    assert task.data_dir == tmp_path
    task, _, _ = load_task(tmp_path / "run", data_dir=Path("/other"))
    assert isinstance(task, PictureTask)
    assert task.data_dir == Path("/other")


def test_missing_data_leaves_no_run_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise DataError("no network")

    monkeypatch.setattr("momentum_transformer.data.idx.fetch", refuse)
    with pytest.raises(DataError, match=r"MNIST is not in .*: put train-images"):
        run_training(Request("mnist", "linear", "tiny"), tmp_path / "run", resume=False, data_dir=tmp_path)
    assert not (tmp_path / "run").exists()


def test_training_and_validation_images_are_apart() -> None:
    task = PictureTask("digits", Request("digits", "linear", "small", 0, ("data.dither=0",)).config, 0)
    train, validation = task._training
    assert (len(train), len(validation)) == (1350, 150)
    seen = {tuple(row) for step in range(90) for row in task.batch(step, 0, 1).tolist()}
    assert seen == {tuple(row) for row in train.tolist()}
    assert torch.equal(torch.cat(list(task.validation(7, 0, 1))), validation)
    halves = torch.cat([torch.cat(list(task.test(shard, 2))) for shard in range(2)])
    assert sorted(halves.tolist()) == sorted(task.test_images.tolist())


def test_dither_fills_the_gaps_between_grey_levels_of_training_images_only() -> None:
    plain, dithered = (
        PictureTask("digits", Request("digits", "linear", "small", 0, (f"data.dither={width}",)).config, 0)
        for width in (0, 16)
    )
    before, after = (torch.cat([task.batch(step, 0, 1) for step in range(90)]).int() for task in (plain, dithered))
    assert before.unique().numel() == 17
    assert after.unique().numel() > 240
    assert (after - before).abs().max() == 8
    edges = (before == 0) | (before == 255)
    assert torch.equal(before[edges], after[edges])
    assert torch.equal(dithered.batch(3, 1, 2), dithered.batch(3, 0, 1)[1::2])
    assert not torch.equal(dithered.batch(3, 0, 1), plain.batch(3, 0, 1))
    assert torch.equal(dithered.test_images, plain.test_images)


@pytest.mark.parametrize(("images", "parameters"), [("mnist", 6.36e6), ("cifar10", 12.68e6)])
def test_paper_scale_has_the_papers_size(images: str, parameters: float) -> None:
    task = PictureTask(images, Request(images, "linear", "paper").config, 0)
    assert sum(p.numel() for p in task.model.parameters()) == pytest.approx(parameters, rel=2e-3)
    assert task.pixel_model.length == {"mnist": 784, "cifar10": 3072}[images]


@pytest.mark.parametrize(
    ("images", "model", "steps", "batch", "rate", "evaluate"),
    [
        ("mnist", "softmax", 1_500_000, 10, 1e-4, 6_000),
        ("mnist", "momentum", 1_500_000, 10, 1e-4, 6_000),
        ("cifar10", "momentum", 1_250_000, 4, 2e-4, 12_500),
        ("cifar10", "softmax", 5_000_000, 1, 2e-4, 50_000),
    ],
)
def test_paper_scale_is_the_papers_protocol(
    images: str, model: str, steps: int, batch: int, rate: float, evaluate: int
) -> None:
    config = Request(images, model, "paper").config
    train = config.train
    assert (train.steps, train.batch_size, train.learning_rate) == (steps, batch, rate)
    assert (train.evaluate_every, train.schedule, train.optimizer, train.clip) == (
        evaluate,
        "constant",
        "radam",
        "tensor",
    )
    assert (config.model.dropout, config.model.width, config.model.heads, config.model.feedforward) == (
        0.1,
        256,
        8,
        1024,
    )
    beta = 0.6 if images == "mnist" else 0.1
    connection = 0.99 if images == "mnist" else 0.9
    connected = Request(images, "momentum-connection", "paper").config.model
    assert (connected.mixer.beta, connected.mixer.gamma) == (beta, 0.9)
    assert connected.connection == MomentumConnection(0.1, connection)


@pytest.mark.parametrize("scale", ["tiny", "small", "paper"])
@pytest.mark.parametrize("images", SETS)
def test_configurations_of_all_models_differ_in_the_model_only_and_survive_json(images: str, scale: str) -> None:
    configs = [Request(images, model, scale).config for model in PICTURE_MODELS]
    assert all(from_json(PictureConfig, to_json(config)) == config for config in configs)
    assert len({config.data for config in configs}) == 1
    assert len({config.train for config in configs if config.model.attention != "softmax"}) == 1
    assert len({(c.model.depth, c.model.width, c.model.dropout) for c in configs}) == 1
    momentum = [c.model.mixer for c in configs if c.model.attention in ("momentum", "gated-momentum")]
    assert len({(mixer.beta, mixer.gamma) for mixer in momentum}) == 1


@pytest.mark.parametrize("model", PICTURE_MODELS)
def test_every_model_trains_and_draws(model: str, tmp_path: Path) -> None:
    settings = ("train.steps=4", "train.evaluate_every=4", "train.batch_size=4")
    assert run_training(Request("digits", model, "tiny", 1, settings), tmp_path, resume=False)
    assert lines(tmp_path, "test")


@pytest.mark.parametrize("images", ["mnist", pytest.param("cifar10", marks=pytest.mark.slow)])
def test_real_images_train(images: str, tmp_path: Path) -> None:
    if not (data_root(None) / images).is_dir():
        pytest.skip(f"there is no {images} in {data_root(None)}; set MOMENTUM_DATA")
    assert run_training(Request(images, "linear", "tiny"), tmp_path, resume=False)
    data = json.loads((tmp_path / "provenance.json").read_text())["data"]
    assert data["images"]["test"] == 10_000
    if images == "cifar10" and data["images"]["training"] < 40_000:
        assert data["note"] == "a subset: 10,000 of 50,000 training images"


def test_every_set_is_an_experiment_and_a_study() -> None:
    for name in SETS:
        assert EXPERIMENTS[name].models == (*PICTURE_MODELS, *FAMILY)
        assert [variant.model for variant in REPRODUCTIONS[name].variants] == list(PICTURE_MODELS)
        assert isinstance(EXPERIMENTS[name].task(Request(name, "linear", "tiny").config, 0), HasTest)
    for table in PAPER_TABLES.values():
        assert tuple(table) == PICTURE_MODELS


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("data.pool=3", "data.pool must divide 8 and 8, not 3"),
        ("data.validation=0", "data.validation must be 1 or more"),
        ("model.heads=3", "width must be a multiple of heads"),
    ],
)
def test_wrong_settings_say_what_is_right(setting: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=message):
        run_training(Request("digits", "linear", "tiny", 0, (setting,)), tmp_path / "run", resume=False)
    assert not (tmp_path / "run").exists()
