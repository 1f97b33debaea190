"""Made tasks: every model trains, only what is scored counts, and each part has a mean of its own."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from momentum_transformer.cli import main
from momentum_transformer.data.scored_sequences import ScoredSequences
from momentum_transformer.experiments import EXPERIMENTS
from momentum_transformer.experiments.configuration import ConfigurationError
from momentum_transformer.experiments.runs import Request, run_training
from momentum_transformer.experiments.synthetic.synthetic_task import (
    MADE_MODELS,
    MadeTask,
    score_numbers,
    score_symbols,
)
from momentum_transformer.training.run_directory import RunDirectory

MADE = ("recall", "recall-rewrite", "selective-copy", "parity", "s3", "regression")
PARTS = {
    "recall": [],
    "recall-rewrite": ["accuracy_revised", "accuracy_untouched"],
    "selective-copy": [],
    "parity": ["accuracy_40", "accuracy_64", "accuracy_128", "accuracy_256"],
    "s3": ["accuracy_40", "accuracy_64", "accuracy_128", "accuracy_256"],
    "regression": [f"{name}_{n}" for n in range(6) for name in ("error", "least_squares", "gradient_step")],
}


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(list(words))
    return int(end.value.code or 0)


def task(experiment: str, model: str = "linear", seed: int = 0, *settings: str) -> MadeTask:
    config = Request(experiment, model, "tiny", seed, settings).config
    made = EXPERIMENTS[experiment].task(config, seed)
    assert isinstance(made, MadeTask)
    return made


@pytest.mark.grid
@pytest.mark.parametrize("model", MADE_MODELS)
@pytest.mark.parametrize("experiment", MADE)
def test_every_model_takes_steps(experiment: str, model: str) -> None:
    made = task(experiment, model)
    optimizer = torch.optim.SGD(made.model.parameters(), lr=0.01)
    batch = made.batch(0, 0, 1)
    losses = []
    for _ in range(3):
        score = made.score(made.model, batch)
        loss = score.loss / score.count
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert all(parameter.isfinite().all() for parameter in made.model.parameters())
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("experiment", MADE)
def test_train_evaluate_resume(experiment: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("train", experiment, "--model", "delta", "--scale", "tiny", "--runs", str(tmp_path))
    assert run(*words) == 0
    directory = tmp_path / experiment / "delta" / "tiny-seed0"
    lines = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    (noted,) = (line for line in lines if line["kind"] == "test")
    for name in PARTS[experiment]:
        assert name in noted
    assert "test split: loss" in capsys.readouterr().out
    assert run("evaluate", str(directory), "--split", "test") == 0
    assert f"loss: {noted['loss']:.6f}" in capsys.readouterr().out
    assert run("evaluate", str(directory)) == 0
    assert run(*words, "--resume") == 0


def test_the_accuracy_of_all_lengths_is_the_mean_over_tokens_of_those_of_each(tmp_path: Path) -> None:
    request = Request("s3", "softmax", "tiny", settings=("data.test_lengths=[5,7,30,50]", "data.test_batches=2"))
    assert run_training(request, tmp_path / "run", resume=False)
    (noted,) = (line for line in RunDirectory(tmp_path / "run").metrics() if line["kind"] == "test")
    mean = sum(n * noted[f"accuracy_{n}"] for n in (5, 7, 30, 50)) / 92
    assert mean == pytest.approx(noted["accuracy"], abs=1e-12)


@pytest.mark.parametrize("experiment", MADE)
def test_every_model_has_the_same_settings_at_every_scale(experiment: str) -> None:
    known = EXPERIMENTS[experiment]
    assert set(known.minutes) == {"tiny", "small", "paper"}
    for scale in known.minutes:
        configs: list[Any] = [known.config(model, scale) for model in MADE_MODELS]
        assert len({(config.data, config.train, config.positions) for config in configs}) == 1
        sizes = {(c.model.depth, c.model.width, c.model.heads, c.model.feedforward) for c in configs}
        assert len(sizes) == 1
        assert [c.model.attention for c in configs if c.model.residual == "plain"] == [
            name for name in MADE_MODELS if name not in ("adaptive-momentum", "momentum-connection")
        ]


def test_the_trial_of_recall_is_scale_small() -> None:
    config: Any = Request("recall", "softmax", "small").config
    assert (config.data.pairs, config.data.vocabulary, config.data.length) == (8, 256, 64)
    assert (config.model.width, config.model.depth, config.train.learning_rate) == (64, 2, 0.003)
    rewriting: Any = Request("recall-rewrite", "softmax", "small").config
    assert rewriting.data.rewritten == 4


@pytest.mark.parametrize("experiment", MADE)
def test_data_is_made_from_seed_and_step_and_splits_differ(experiment: str) -> None:
    first, other = task(experiment), task(experiment, seed=1)
    assert torch.equal(first.batch(3, 0, 1).inputs, task(experiment, "delta").batch(3, 0, 1).inputs)
    inputs = [
        first.batch(0, 0, 1).inputs,
        first.batch(1, 0, 1).inputs,
        other.batch(0, 0, 1).inputs,
        next(first.validation(0, 0, 1)).inputs,
        next(first.validation(1, 0, 1)).inputs,
        next(first.test(0, 1)).inputs,
    ]
    pairs = [(a, b) for i, a in enumerate(inputs) for b in inputs[:i]]
    assert not any(torch.equal(a, b) for a, b in pairs)
    parts = [first.batch(0, i, 2).inputs for i in range(2)]
    assert torch.equal(torch.stack(parts, 1).flatten(0, 1), inputs[0])


class Says(nn.Module):
    """Always the same answers."""

    def __init__(self, answers: Tensor) -> None:
        super().__init__()
        self.answers = nn.Parameter(answers)

    def forward(self, inputs: Tensor, at: Tensor | None = None) -> Tensor:
        return self.answers if at is None else self.answers[at]


def test_symbols_are_scored_where_they_are_scored_and_by_part() -> None:
    scored = torch.tensor([[True, True, False, True]])
    part = torch.tensor([[True, False, False, True]])
    answers = nn.functional.one_hot(torch.tensor([[1, 2, 0, 0]]), 3).float()
    for behind in (0, 2):
        targets = torch.tensor([[1, 2, behind, 2]])
        score = score_symbols(Says(answers), ScoredSequences(targets, targets, scored, {"some": part}, {}))
        assert score.count == 3
        assert score.sums == {"accuracy": 2, "accuracy_some": 1}
        assert score.counts == {"accuracy_some": 2}
        logs = answers[0].log_softmax(-1)
        torch.testing.assert_close(score.loss, -(logs[0, 1] + logs[1, 2] + logs[3, 2]))


def test_numbers_are_scored_beside_their_yardsticks() -> None:
    scored = torch.tensor([[True, False, True]])
    parts = {"0": torch.tensor([[True, False, False]]), "1": torch.tensor([[False, False, True]])}
    targets = torch.tensor([[1.0, 50.0, 2.0]])
    yardsticks = {"least_squares": torch.tensor([[1.0, 0.0, 5.0]])}
    batch = ScoredSequences(torch.zeros(1, 3, 2), targets, scored, parts, yardsticks)
    with torch.no_grad():
        score = score_numbers(Says(torch.tensor([[3.0, 0.0, 2.5]])), batch)
    assert (float(score.loss), int(score.count)) == (4.25, 2)
    assert {name: float(value) for name, value in score.sums.items()} == {
        "least_squares": 9.0,
        "error_0": 4.0,
        "least_squares_0": 0.0,
        "error_1": 0.25,
        "least_squares_1": 9.0,
    }
    assert all(count == 1 for count in score.counts.values())


@pytest.mark.parametrize(
    ("experiment", "setting", "message"),
    [
        ("recall", "data.pairs=9", "9 pairs and their questions take 36 tokens, not 16"),
        ("recall", "data.vocabulary=3", "keys and values must differ: they take 4 symbols or more, not 3"),
        ("recall-rewrite", "data.length=9", "2 pairs, 1 of them written twice, and their questions take 10 tokens"),
        ("selective-copy", "data.alphabet=1", "an alphabet of 2 or more, not 3, 6 and 1"),
        ("parity", "data.shortest=13", "data.shortest must be 1 to data.length = 12, not 13"),
        ("s3", "data.test_lengths=[40,40,64,128]", "four different lengths of 1 or more, not 40, 40, 64, 128"),
        ("regression", "data.noise=-1", "noise that is not negative"),
        ("regression", "train.select=accuracy", "train.select must be loss for regression, which has no accuracy"),
        ("regression", "data.test_batches=0", "data.test_batches must be 1 or more, not 0"),
    ],
)
def test_bad_settings_are_one_clear_line(experiment: str, setting: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        _ = Request(experiment, "linear", "tiny", settings=(setting,)).config
    assert message in str(error.value)
    assert "\n" not in str(error.value)
