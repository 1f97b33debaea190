"""From run directories to the page: what is shown is what the run draws, and what cannot be shown is said."""

import json
import math
from pathlib import Path

import pytest
import torch

from momentum_transformer.experiments import EXPERIMENTS
from momentum_transformer.experiments.configuration import to_json
from momentum_transformer.experiments.runs import Request
from momentum_transformer.experiments.shipped import shipped_run, shipped_runs
from momentum_transformer.generation.pixels import draw_images
from momentum_transformer.models.logistic_mixture import mixture_log_likelihood
from momentum_transformer.training.checkpoint import CheckpointError, save_checkpoint
from momentum_transformer.training.run_directory import RunDirectory, RunError
from momentum_transformer.web.drawers import TrainedModel
from momentum_transformer.web.page_models import Picture
from momentum_transformer.web.served_runs import EXAMPLES, load_models

MODELS = ("softmax", "linear", "momentum", "adaptive-momentum")


def begin(root: Path, experiment: str, model: str, seed: int = 0) -> Path:
    """A run as it stands before the first step: untrained models draw, too."""
    request = Request(experiment, model, "tiny", seed)
    run = RunDirectory(request.directory(root))
    run.create({**to_json(request), "config": to_json(request.config)})
    task = EXPERIMENTS[experiment].task(request.config, seed)
    save_checkpoint(run.best, task.model.state_dict(), None, {"step": 0})
    return run.path


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    for model in MODELS:
        begin(root, "digits", model)
    begin(root, "copy", "linear")
    return root


@pytest.fixture(scope="module")
def models(runs: Path) -> list[TrainedModel]:
    return load_models([runs / "digits"])[0]


def test_a_folder_gives_all_its_runs_in_the_order_of_the_tables(models: list[TrainedModel]) -> None:
    assert [model.name for model in models] == list(MODELS)
    assert {model.subject for model in models} == {"digits, 4 × 4"}
    assert {model.picture for model in models} == {Picture(4, 4, 1)}
    assert [model.momentum for model in models] == [None, None, (0.6, 0.9), (0.6, 0.9)]
    assert [len(model.examples()) for model in models] == [EXAMPLES] * 4
    assert {len(image) for image in models[0].examples()} == {16}


@pytest.mark.parametrize("number", range(len(MODELS)), ids=MODELS)
def test_the_page_draws_what_generate_draws_at_the_bits_of_the_parallel_form(
    models: list[TrainedModel], number: int
) -> None:
    shown = models[number]
    given = shown.examples()[3][:6]
    steps = list(shown.draw(given, temperature=0.8, seed=5))
    upper = torch.tensor([list(given)], dtype=torch.uint8)
    whole = draw_images(shown.model, count=1, given=upper, temperature=0.8, seed=5)
    assert [step.value for step in steps] == whole[0, 6:].tolist()
    with torch.no_grad():
        bits = -mixture_log_likelihood(shown.model(whole), whole)[0] / math.log(2)
    assert [step.bits for step in steps] == pytest.approx(bits[6:].tolist(), abs=1e-3)
    assert shown.given_bits(given) == pytest.approx(float(bits[:6].sum()), abs=1e-3)
    assert all(step.seconds > 0 for step in steps)
    sizes = [step.state_bytes for step in steps]
    growing = sizes == sorted(set(sizes))
    assert growing if MODELS[number] == "softmax" else len(set(sizes)) == 1
    assert min(sizes) > 0


def test_a_picture_can_begin_from_nothing(models: list[TrainedModel]) -> None:
    steps = list(models[2].draw(b"", temperature=1.0, seed=0))
    assert [step.value for step in steps] == draw_images(models[2].model, count=1)[0].tolist()


def test_runs_that_make_nothing_to_see_or_are_broken_are_left_out_of_a_folder(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "alien").mkdir()
    (tmp_path / "alien" / "config.json").write_text("[]")
    models, _, _, missing = load_models([runs, tmp_path])
    assert len(models) == 4
    assert missing[0] == f"left out: 1 of the runs in {runs} neither draw, translate nor write"
    assert "holds no object" in missing[1]


def test_a_named_run_must_be_usable(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is a run of copy, which neither draws, translates nor writes"):
        load_models([runs / "copy" / "linear" / "tiny-seed0"])
    with pytest.raises(RunError, match="there is no folder nowhere"):
        load_models([Path("nowhere")])
    with pytest.raises(
        RunError, match=r"no trained run that draws, translates or writes in .*; make one: momentum train digits"
    ):
        load_models([tmp_path])
    broken = begin(tmp_path, "digits", "linear")
    (broken / "checkpoint" / "best.safetensors").unlink()
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        load_models([broken])
    watched = load_models([tmp_path])  # it is under way
    assert watched.names == []
    assert watched.missing[0].startswith("left out: there is no checkpoint")
    RunDirectory(broken).append_metrics({"kind": "end", "step": 8})
    with pytest.raises(
        RunError, match=r"no trained run that draws, translates or writes in .* \(left out: there is no checkpoint"
    ):
        load_models([tmp_path])


def test_the_step_of_an_unfinished_run_is_noted(tmp_path: Path) -> None:
    run = begin(tmp_path, "digits", "linear")
    assert [model.note for model in load_models([run]).models] == ["step 0 of 20"]
    RunDirectory(run).append_metrics({"kind": "end", "step": 20})
    assert [model.note for model in load_models([run]).models] == [""]


def test_models_of_one_kind_are_told_apart(runs: Path, tmp_path: Path) -> None:
    begin(tmp_path, "digits", "linear", seed=1)
    again = runs / "digits" / "linear"  # is shown once
    models, *_ = load_models([runs / "digits", tmp_path, again])
    names = [model.name for model in models]
    assert names == ["softmax", "linear seed0", "momentum", "adaptive-momentum", "linear seed1"]


def test_the_same_run_in_two_places_is_told_apart_by_the_place(tmp_path: Path) -> None:
    first, second = (begin(tmp_path / place, "digits", "linear") for place in ("a", "b"))
    assert [model.name for model in load_models([tmp_path])[0]] == [f"linear {first}", f"linear {second}"]


def test_absent_test_images_are_said_and_not_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MOMENTUM_DATA", raising=False)
    monkeypatch.setattr("momentum_transformer.data.download.urlopen", lambda *_, **__: pytest.fail("a download"))
    models, _, _, missing = load_models([begin(tmp_path, "mnist", "linear")], tmp_path / "no-data")
    assert not models[0].examples()
    assert missing == [
        f"no test images of mnist, 4 × 4: {tmp_path / 'no-data'} has none; name their folder by --data-dir or "
        "MOMENTUM_DATA"
    ]


def test_the_shipped_run_is_found_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("momentum_transformer.experiments.shipped.SHIPPED", tmp_path)
    assert shipped_run() is None
    assert shipped_runs() == ()
    first = tmp_path / "digits" / "momentum"
    first.mkdir(parents=True)
    (first / "config.json").write_text(json.dumps({}))
    assert shipped_run() == first
    assert shipped_runs() == (tmp_path,)
