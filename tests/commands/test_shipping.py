"""The models that come with the package: trained by one command, small, described, and of use without data."""

import shutil
from pathlib import Path

import pytest

from momentum_transformer.commands import shipping
from momentum_transformer.experiments.runs import Request, load_run
from momentum_transformer.experiments.shipped import SHIPPED, shipped_run
from momentum_transformer.training.checkpoint import read_checkpoint
from momentum_transformer.training.run_directory import RunDirectory, find_runs
from momentum_transformer.web.served_runs import load_models

MOST_BYTES = 12 * 10**6


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model, made as all are."""
    root = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            shipping, "SHIPMENTS", (Request("digits", "momentum", "tiny"), Request("digits", "linear", "tiny"))
        )
        assert shipping.main(["--only", "digits/momentum", *places(root)]) == 0
    return root


def places(root: Path) -> list[str]:
    return ["--runs", str(root / "runs"), "--out", str(root / "kept")]


def test_what_using_it_needs_is_kept_and_no_more(made: Path, tmp_path: Path) -> None:
    kept = made / "kept" / "digits" / "momentum"
    assert not (made / "kept" / "digits" / "linear").exists()
    assert {str(path.relative_to(kept)) for path in kept.rglob("*") if path.is_file()} == {
        *("config.json", "provenance.json", "metrics.jsonl", "README.md"),
        *("checkpoint/best.safetensors", "samples/test_images.bin"),
    }
    moved = tmp_path / "moved"
    shutil.copytree(kept, moved)
    (model,) = load_models([moved], tmp_path / "no-data").models
    assert len(model.examples()) == 12
    assert len(list(model.draw(b"", temperature=1.0, seed=0))) == model.picture.size


def test_weights_are_kept_in_half_precision(made: Path) -> None:
    kept, _ = read_checkpoint(RunDirectory(made / "kept" / "digits" / "momentum").best)
    (run,) = find_runs(made / "runs")
    whole, _ = read_checkpoint(run.best)
    assert kept.keys() == whole.keys()
    for name, tensor in kept.items():
        assert tensor.equal(whole[name].half() if whole[name].is_floating_point() else whole[name])


def test_the_model_card_has_the_command_and_the_scores(made: Path) -> None:
    card = (made / "kept" / "digits" / "momentum" / "README.md").read_text()
    assert "momentum train digits --model momentum --scale tiny --seed 0" in card
    test = next(
        line for line in RunDirectory(made / "kept" / "digits" / "momentum").metrics() if line["kind"] == "test"
    )
    assert f"| bits_per_dim (test) | {test['bits_per_dim']:.4g} |" in card
    assert "CC BY 4.0" in card


def test_what_is_trained_is_not_trained_again(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipping, "SHIPMENTS", (Request("digits", "momentum", "tiny"),))
    monkeypatch.setattr(shipping, "run_training", lambda *_, **__: pytest.fail("trained again"))
    assert shipping.main(places(made)) == 0


def test_an_unknown_name_and_missing_data_are_said_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit):
        shipping.main(["--only", "poems"])
    assert "--only knows digits, digits/momentum" in capsys.readouterr().err
    monkeypatch.setattr("momentum_transformer.data.download.urlopen", _no_network)
    assert shipping.main(["--only", "mnist/linear", *places(tmp_path), "--data-dir", str(tmp_path)]) == 2
    assert capsys.readouterr().out.startswith("mnist linear: ")


def _no_network(*_: object, **__: object) -> None:
    raise OSError("no network")


def test_what_is_shipped_is_small_described_and_made_by_the_command() -> None:
    assert shipped_run() is not None
    assert sum(path.stat().st_size for path in SHIPPED.rglob("*") if path.is_file()) <= MOST_BYTES
    asked = {(one.experiment, one.model): one for one in shipping.SHIPMENTS}
    for run in find_runs(SHIPPED):
        request, _ = load_run(run.path)
        assert request == asked[request.experiment, request.model]
        assert (run.path / "README.md").read_text().startswith("# ")


def test_every_shipped_model_is_served(tmp_path: Path) -> None:
    loaded = load_models([SHIPPED], tmp_path / "no-data")
    assert len(loaded.names) == len(list(find_runs(SHIPPED)))
    assert not [line for line in loaded.missing if line.startswith("left out")]
