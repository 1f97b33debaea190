"""Models of the family on the command line: trained, resumed, sampled, in every experiment that has them."""

from pathlib import Path
from typing import Any

import pytest
import torch

from momentum_transformer.cli import main
from momentum_transformer.experiments import EXPERIMENTS
from momentum_transformer.experiments.configuration import ConfigurationError
from momentum_transformer.experiments.model_config import model_of, named
from momentum_transformer.experiments.named_models import FAMILY
from momentum_transformer.experiments.runs import Request, load_task
from momentum_transformer.layers import GatedDeltaAttention, ShortConvolution, SoftmaxAttention
from momentum_transformer.models.language_model import LanguageModel


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(list(words))
    return int(end.value.code or 0)


@pytest.mark.parametrize("model", FAMILY)
def test_copy_trains_and_samples_what_it_trained(model: str, tmp_path: Path) -> None:
    assert run("train", "copy", "--model", model, "--scale", "tiny", "--runs", str(tmp_path)) == 0
    task, _, _ = load_task(tmp_path / "copy" / model / "tiny-seed0")
    trained = task.model.eval()
    assert isinstance(trained, LanguageModel)
    tokens = torch.randint(0, 4, (2, 16), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        whole = trained(tokens)
        logits, state = trained.prefill(tokens[:, :5])
        steps = [logits[:, -1]]
        for i in range(5, 16):
            logits, state = trained.step(tokens[:, i], state)
            steps.append(logits)
    torch.testing.assert_close(torch.stack(steps, 1), whole[:, 4:], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("experiment", ["copy", "digits", "mnist", "cifar10", "lra-listops", "lra-text"])
@pytest.mark.parametrize("model", FAMILY)
def test_every_scale_has_a_configuration(model: str, experiment: str) -> None:
    for scale in ("tiny", "small", "paper"):
        config: Any = Request(experiment, model, scale).config
        assert config.model.attention == model
        assert model in EXPERIMENTS[experiment].models


@pytest.mark.parametrize(("depth", "softmax"), [(1, [0]), (2, [1]), (4, [3]), (8, [3, 7]), (10, [3, 7])])
def test_one_layer_in_four_of_a_hybrid_is_softmax(depth: int, softmax: list[int]) -> None:
    mixers = named("hybrid", {"depth": depth}).mixers()
    assert [i for i, mixer in enumerate(mixers) if isinstance(mixer, SoftmaxAttention)] == softmax
    assert all(isinstance(mixer, GatedDeltaAttention) for i, mixer in enumerate(mixers) if i not in softmax)


def test_parts_are_switched_by_a_setting() -> None:
    linear: Any = Request("copy", "linear", "tiny", settings=("model.convolution=on",)).config.model.make_mixer()
    assert linear.convolution == ShortConvolution()
    bare: Any = Request("copy", "gated-delta", "tiny", settings=("model.convolution=off", "model.tail=off"))
    assert bare.config.model.make_mixer() == GatedDeltaAttention(
        steps=bare.config.model.mixer.decay_steps, convolution=None, tail=None
    )
    with pytest.raises(
        ConfigurationError, match=r"model\.tail must be own for linear, which has no such part, not on"
    ):
        _ = Request("copy", "linear", "tiny", settings=("model.tail=on",)).config


@pytest.mark.parametrize("model", ["gated-delta", "hybrid"])
def test_digits_are_drawn_token_by_token(model: str, tmp_path: Path) -> None:
    assert run("train", "digits", "--model", model, "--scale", "tiny", "--runs", str(tmp_path)) == 0
    assert (tmp_path / "digits" / model / "tiny-seed0" / "samples").is_dir()


def test_without_decay_and_gate_a_gated_delta_rule_is_the_delta_rule() -> None:
    sizes: dict[str, Any] = {"depth": 2, "width": 16, "heads": 2, "feedforward": 32, "dropout": 0.0}
    bare = model_of({"attention": "gated-delta", "decay": False, "tail": "norm", **sizes}).encoder(causal=True)
    delta = model_of({"attention": "delta", **sizes}).encoder(causal=True)
    delta.load_state_dict(bare.state_dict())
    x = torch.randn(2, 9, 16)
    torch.testing.assert_close(bare(x), delta(x), rtol=0, atol=0)


@pytest.mark.parametrize("tail", ["norm", "gate"])
def test_one_half_of_a_tail_can_be_left_out(tail: Any) -> None:
    sizes = {"depth": 1, "width": 16, "heads": 2}
    names = named("momentum-delta", {"tail": tail, **sizes}).encoder(causal=True).state_dict()
    assert any(".tail.norm." in name for name in names) == (tail == "norm")
    assert any(".tail.gate." in name for name in names) == (tail == "gate")
