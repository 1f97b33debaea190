"""A trained model in one line of Python, and a model in a few lines of print."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import momentum_transformer
from momentum_transformer import (
    Encoder,
    LanguageModel,
    MomentumAttention,
    MomentumResidual,
    PixelModel,
    SequenceClassifier,
    SoftmaxAttention,
    load,
)
from momentum_transformer.experiments.configuration import ConfigurationError
from momentum_transformer.experiments.runs import Request, load_task, run_training
from momentum_transformer.layers import LearnedMomentumAttention
from momentum_transformer.models import NonAutoregressiveTranslator
from momentum_transformer.training.checkpoint import CheckpointError
from momentum_transformer.training.run_directory import RunError


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "copy"
    assert run_training(Request("copy", "momentum", "tiny"), out, resume=False)
    return out


@pytest.mark.parametrize("kind", [str, Path])
def test_a_run_gives_its_model(trained: Path, kind: type) -> None:
    model = load(kind(trained))
    assert isinstance(model, LanguageModel)
    assert not model.training
    wanted = load_task(trained)[0].model.state_dict()
    assert all(tensor.equal(wanted[name]) for name, tensor in model.state_dict().items())


def test_best_and_last_are_two_checkpoints(trained: Path) -> None:
    (trained / "checkpoint" / "best.safetensors").rename(trained / "checkpoint" / "aside")
    with pytest.raises(CheckpointError, match=r"there is no checkpoint .*best\.safetensors"):
        load(trained)
    assert isinstance(load(trained, checkpoint="last"), LanguageModel)
    (trained / "checkpoint" / "aside").rename(trained / "checkpoint" / "best.safetensors")


def test_the_model_that_comes_with_the_package_is_a_pixel_model() -> None:
    from momentum_transformer.experiments.shipped import shipped_run

    run = shipped_run()
    assert run is not None
    assert isinstance(load(run), PixelModel)


def test_a_folder_of_transformers_gives_the_same_model(trained: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from momentum_transformer.hf.export import export_run

    export_run(trained, tmp_path / "exported")
    model = load(tmp_path / "exported")
    tokens = torch.randint(0, 5, (2, 7))
    assert isinstance(model, LanguageModel)
    assert not model.training
    torch.testing.assert_close(model(tokens), load(trained)(tokens))
    (tmp_path / "exported" / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(RunError, match=r"exported cannot be loaded: "):
        load(tmp_path / "exported")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "is not a run directory: it has no config.json"),
        ("{", r"config\.json cannot be read"),
        ("[]", r"config\.json cannot be read: it holds no object"),
        ("{}", r"config\.json has no 'experiment'"),
        ('{"model_type": "llama"}', "holds a model of type 'llama', which is none of ours"),
        (
            '{"model_type": "momentum", "architectures": ["os"]}',
            r"must name one of the architectures .*, not \['os'\]",
        ),
    ],
    ids=["empty", "cut", "list", "nothing", "llama", "architecture"],
)
def test_what_is_no_model_is_named(tmp_path: Path, content: str | None, message: str) -> None:
    if content and "model_type" in content:
        pytest.importorskip("transformers")
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(RunError, match=message):
        load(tmp_path)


def test_an_unknown_checkpoint_is_refused(trained: Path) -> None:
    with pytest.raises(ConfigurationError, match="unknown checkpoint 'bets'; did you mean 'best'"):
        load(trained, checkpoint="bets")


def test_the_package_itself_loads_no_torch() -> None:
    program = "import sys, momentum_transformer; assert 'torch' not in sys.modules; momentum_transformer.load"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_printing_a_model_says_how_it_mixes_in_a_few_lines() -> None:
    encoder = Encoder(12, 64, 4, attention=MomentumAttention(beta=0.6, gamma=0.9), residual=MomentumResidual(beta=0.1))
    model = LanguageModel(100, encoder)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    assert str(model).splitlines() == [
        f"LanguageModel: {parameters:,} parameters",
        "  12 × MomentumAttention(beta=0.6, gamma=0.9)",
        "  residual: MomentumResidual(beta=0.1, gamma=1.0)",
        "  width 64, 4 heads, causal",
    ]
    assert str(encoder).startswith("Encoder: ")


def test_a_hybrid_is_printed_layer_by_layer_and_learned_momentum_as_it_is_now() -> None:
    learned = LearnedMomentumAttention(MomentumAttention(beta=0.5))
    encoder = Encoder(3, 16, 2, attention=[SoftmaxAttention(), learned, learned], causal=False)
    with torch.no_grad():
        encoder.get_parameter("blocks.2.attention.mixer.beta_logit").fill_(2.0)
    shown = str(SequenceClassifier(10, 2, encoder, length=8))
    assert "1 × SoftmaxAttention()" in shown
    assert (
        "2 × LearnedMomentumAttention(start=MomentumAttention(beta=0.5, gamma=1.0)), learned: beta 0.5 to 0.881"
        in shown
    )
    assert "not causal" in shown


def test_a_translator_is_printed_in_a_few_lines() -> None:
    options = {"depth": 2, "width": 16, "heads": 2, "feedforward": 16, "dropout": 0.0}
    model = NonAutoregressiveTranslator(20, attention=MomentumAttention(), residual=MomentumResidual(0.1), **options)
    assert len(str(model).splitlines()) < 8
    assert "MomentumAttention(beta=0.1, gamma=1.0)" in str(model)


def test_the_names_of_models_are_public() -> None:
    assert {"LanguageModel", "SequenceClassifier", "PixelModel", "load"} <= set(momentum_transformer.__all__)
