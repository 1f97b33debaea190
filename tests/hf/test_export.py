"""Run directories become folders of Transformers with the same logits, and come back."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from torch import Tensor

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'momentum-transformer[hf]'")

from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from momentum_transformer import Encoder, GatedDeltaAttention, PlainResidual
from momentum_transformer.cli import main
from momentum_transformer.data.copy_sequences import SEPARATOR, copy_batch
from momentum_transformer.experiments.runs import Request, load_task, run_training
from momentum_transformer.hf import MomentumForCausalLM, to_native, to_transformers
from momentum_transformer.models.classifier import SequenceClassifier
from momentum_transformer.models.language_model import LanguageModel

from .small import config, language_model, tokens

CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def trained(out: Path, experiment: str, model: str, *settings: str) -> Path:
    assert run_training(Request(experiment, model, "tiny", 0, settings), out, resume=False)
    return out


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return int(ended.value.code or 0)


@pytest.mark.parametrize(
    ("experiment", "model", "settings"),
    [
        ("copy", "momentum", ()),
        ("copy", "adaptive-momentum", ()),
        ("copy", "hybrid", ("model.depth=4", "model.norm=pre", "model.activation=gelu")),
        ("recall", "momentum-delta", ("positions=false", "model.convolution=off")),
        ("parity", "delta", ("model.negative=true",)),
    ],
)
def test_an_exported_language_model_has_the_logits_of_the_run(
    experiment: str, model: str, settings: tuple[str, ...], tmp_path: Path
) -> None:
    path = trained(tmp_path / "run", experiment, model, *settings)
    assert run("export", str(path), str(tmp_path / "out")) == 0
    task, _, _ = load_task(path)
    native: Any = task.model.eval()
    exported: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    ids = torch.randint(exported.config.vocab_size, (3, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(exported(ids).logits, native(ids), **CLOSE)
        torch.testing.assert_close(to_native(exported)(ids), native(ids), **CLOSE)
        expected = ids
        for _ in range(4):
            expected = torch.cat([expected, native(expected)[:, -1:].argmax(-1)], 1)
        assert torch.equal(exported.generate(ids, max_new_tokens=4, do_sample=False), expected)
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"trained on its experiment `{experiment}` at scale `tiny`" in card
    assert "| loss |" in card


def test_an_exported_classifier_has_the_logits_of_the_run(tmp_path: Path) -> None:
    path = trained(tmp_path / "run", "lra-listops", "momentum")
    assert run("export", str(path), str(tmp_path / "out"), "--checkpoint", "last") == 0
    task, _, _ = load_task(path, "last")
    native: Any = task.model.eval()
    assert isinstance(native, SequenceClassifier)
    exported: Any = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    ids = torch.randint(exported.config.vocab_size, (2, 9), generator=torch.Generator().manual_seed(0))
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[1, 5:] = False
    with torch.no_grad():
        for given in (None, mask):
            torch.testing.assert_close(exported(ids, attention_mask=given).logits, native(ids, given), **CLOSE)
            torch.testing.assert_close(to_native(exported)(ids, given), native(ids, given), **CLOSE)
    described = json.loads((tmp_path / "out" / "config.json").read_text())
    assert described["architectures"] == ["MomentumForSequenceClassification"]


def test_what_cannot_be_exported_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = trained(tmp_path / "run", "copy", "reformer")
    assert run("export", str(path), str(tmp_path / "out")) == 2
    assert "a run of reformer that cannot be exported: ReformerAttention has no description" in capsys.readouterr().err
    assert run("export", str(path), str(path)) == 2
    assert "is there already and not empty" in capsys.readouterr().err
    numbers = trained(tmp_path / "regression", "regression", "linear")
    assert run("export", str(numbers), str(tmp_path / "out")) == 2
    assert "SequenceRegressor has no counterpart in Transformers" in capsys.readouterr().err
    assert run("export", str(path), str(tmp_path / "out"), "--checkpoint", "bst") == 2
    assert "unknown checkpoint 'bst'; did you mean 'best'?" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_export_is_whole_or_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = trained(tmp_path / "run", "copy", "linear"), tmp_path / "out"

    def fail(model: Any, folder: Path) -> None:
        (folder / "config.json").write_text("{}")
        raise SafetensorError("I/O error: No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(MomentumForCausalLM, "save_pretrained", fail)
        assert run("export", str(path), str(out)) == 2
    assert capsys.readouterr().err == f"momentum: {out} cannot be written: I/O error: No space left on device\n"
    assert [place.name for place in tmp_path.iterdir()] == ["run"]
    (tmp_path / "out.writing").mkdir()
    (tmp_path / "out.writing" / "of a killed process").touch()
    assert run("export", str(path), str(out)) == 0
    assert sorted(place.name for place in tmp_path.iterdir()) == ["out", "run"]
    assert not (out / "of a killed process").exists()
    assert run("export", str(path), str(path)) == 2
    assert "rm -r" not in capsys.readouterr().err


def test_models_made_in_transformers_become_ours() -> None:
    model = language_model("hybrid", tie_word_embeddings=True)
    native = to_native(model)
    assert isinstance(native, LanguageModel)
    with torch.no_grad():
        torch.testing.assert_close(native(tokens(2, 5)), model(tokens(2, 5)).logits, rtol=1e-10, atol=1e-10)
    with pytest.raises(ValueError, match="has no counterpart here"):
        to_native(MomentumForCausalLM(config(positions="learned")))


@torch.no_grad()
def test_weights_in_float64_stay_as_they_are() -> None:
    mixers = [GatedDeltaAttention()] * 2
    native = LanguageModel(23, Encoder(2, 16, 2, attention=mixers)).double()
    for weight in native.parameters():
        weight.normal_()
    again = to_native(to_transformers(native, mixers, PlainResidual()))
    for name, weight in native.state_dict().items():
        assert torch.equal(again.state_dict()[name], weight), name


@pytest.mark.slow
@torch.no_grad()
def test_a_model_that_we_trained_copies_in_transformers(tmp_path: Path) -> None:
    settings = ("train.steps=600", "train.batch_size=32", "train.learning_rate=0.003", "model.width=32")
    with torch.enable_grad():
        path = trained(tmp_path / "run", "copy", "gated-delta", *settings)
    assert run("export", str(path), str(tmp_path / "out")) == 0
    model: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    batch = copy_batch(20, length=16, symbols=4, seed=123)
    right = 0
    for row in batch.tokens:
        size = int((row == SEPARATOR).nonzero()[0])
        made: Tensor = model.generate(row[None, : size + 1], max_new_tokens=size, do_sample=False)
        right += int((made[0, size + 1 :] == row[:size]).sum()) == size
    assert right >= 18
