"""Text byte by byte: any file, nats a byte and a character, and a test split that chooses nothing."""

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from momentum_transformer.data.folder import DataError
from momentum_transformer.data.packed_text import Windows
from momentum_transformer.experiments.configuration import ConfigurationError
from momentum_transformer.experiments.runs import Request, run_evaluation, run_training
from momentum_transformer.experiments.text import TextTask
from momentum_transformer.training.run_directory import RunDirectory, RunError


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "some.txt"
    path.write_text("To be, or not to be: über allem. " * 80, encoding="utf-8")
    return path


def settings(source: Path) -> tuple[str, ...]:
    return f"data.source={source}", "data.validation=0.1"


def test_a_text_is_trained_on_validated_and_tested(source: Path, tmp_path: Path) -> None:
    request = Request("text", "delta", "tiny", settings=settings(source))
    assert run_training(request, tmp_path / "run", resume=False)
    run = RunDirectory(tmp_path / "run")
    (noted,) = (line for line in run.metrics() if line["kind"] == "test")
    assert noted["bits_per_byte"] == pytest.approx(noted["loss"] / math.log(2))
    assert noted["nats_per_character"] > noted["loss"]  # ü has two bytes
    assert noted["perplexity"] == pytest.approx(math.exp(noted["loss"]))
    assert run.read("provenance.json")["data"]["tokens"].keys() == {"training", "validation", "test"}


def test_a_run_goes_on_with_the_text_it_began_with_and_no_other(source: Path, tmp_path: Path) -> None:
    request, text = Request("text", "delta", "tiny", settings=settings(source)), source.read_text()
    run = RunDirectory(tmp_path / "run")
    run_training(request, run.path, resume=False)
    (run.path / "metrics.jsonl").write_text("")
    source.write_text(text.replace("To", "OT"))
    for again in (lambda: run_training(request, run.path, resume=True), lambda: run_evaluation(run.path, "best")):
        with pytest.raises(RunError, match=r"has changed since the run began: its sha256 is .*; bring back the data"):
            again()
    source.write_text(text)
    assert run_training(request, run.path, resume=True)


class Even(nn.Module):
    """Every byte is as likely as the others."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(256), requires_grad=False)

    def forward(self, tokens: Tensor, at: Tensor | None = None, *, reset: Tensor | None = None) -> Tensor:
        logits = self.bias.expand(*tokens.shape, 256)
        return logits if at is None else logits[at]


def test_scores_are_counted_by_byte_and_by_character(source: Path) -> None:
    task = TextTask(Request("text", "linear", "tiny", settings=settings(source)).config, 0)
    batch = Windows(torch.tensor([[*"aü€b".encode()]]), None)
    score = task.score(Even(), batch)
    assert int(score.count) == 6
    assert int(score.counts["nats_per_character"]) == 3  # ü, €, b
    assert float(score.loss) == pytest.approx(6 * math.log(256))
    assert float(score.sums["bits_per_byte"]) == pytest.approx(6 * 8)


def test_shards_are_rows_of_the_batch_and_validation_is_always_the_same(source: Path) -> None:
    task = TextTask(Request("text", "linear", "tiny", settings=settings(source)).config, 0)
    whole = task.batch(3, 0, 1).tokens
    assert torch.equal(torch.stack([task.batch(3, i, 2).tokens for i in range(2)], 1).flatten(0, 1), whole)
    first, second = (torch.cat([part.tokens for part in task.validation(step, 0, 1)]) for step in (0, 7))
    assert torch.equal(first, second)
    with pytest.raises(ConfigurationError, match=r"train\.select must be loss"):
        _ = Request("text", "linear", "tiny", settings=("train.select=accuracy",)).config


def test_a_text_that_is_too_short_is_named(tmp_path: Path) -> None:
    path = tmp_path / "short.txt"
    path.write_text("short\n")
    task = TextTask(Request("text", "linear", "tiny", settings=(f"data.source={path}",)).config, 0)
    with pytest.raises(DataError, match=r"short\.txt: 6 tokens, of which 5 are for training; .* needs more"):
        task.prepare()


def test_scale_small_is_the_setting_for_a_cpu() -> None:
    config = Request("text", "softmax", "small").config
    model = config.model
    assert (model.depth, model.heads, model.width, config.data.context) == (4, 4, 128, 64)
    assert (config.train.steps, config.train.batch_size) == (2000, 12)


@pytest.mark.parametrize(
    ("scale", "settings", "tied"),
    [
        ("small", (), False),
        ("small", ("tied=on",), True),
        ("paper", (), True),
        ("paper", ("tied=off",), False),
        ("tiny", ("model.block=paper",), False),
    ],
)
def test_one_embedding_serves_input_and_output_where_it_is_told_to(
    scale: str, settings: tuple[str, ...], tied: bool
) -> None:
    assert Request("text", "linear", scale, settings=settings).config.is_tied() is tied


@pytest.mark.parametrize(
    ("model", "settings", "positions"),
    [
        ("softmax", (), True),
        ("softmax", ("model.convolution=on",), True),  # which tells the order of four tokens only
        ("momentum", ("model.convolution=on",), True),
        ("gated-momentum", (), True),
        ("retention", (), True),  # whose decays are slow
        ("delta", (), False),
        ("gated-delta", (), False),
        ("momentum-delta", ("model.decay=false",), False),
        ("hybrid", (), False),
        ("gated-delta", ("positions=on",), True),
        ("gated-delta", ("model.block=paper",), True),
        ("softmax", ("positions=off",), False),
    ],
)
def test_positions_are_where_no_delta_rule_tells_order(model: str, settings: tuple[str, ...], positions: bool) -> None:
    assert Request("text", model, "small", settings=settings).config.has_positions() is positions
