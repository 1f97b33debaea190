"""Tasks whose data is made from (seed, step): no files, no end, and minutes to tell models apart."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F  # noqa: N812 (the field's name for it)
from torch import Tensor, nn

from ...data.scored_sequences import ScoredSequences
from ...training.config import TrainConfig
from ...training.task import Score, part_of
from ..copy import COEFFICIENTS
from ..experiment import Experiment, MakeTask
from ..model_config import ModelConfig, named
from ..named_models import FAMILY

MADE_MODELS = ("softmax", "linear", "momentum", "adaptive-momentum", "momentum-connection", *FAMILY)
MADE_MINUTES = {"tiny": "seconds", "small": "2 minutes", "paper": "days; a GPU is better"}
LACKS = ("medium",)
TINY_SIZES = {"depth": 2, "width": 16, "heads": 2, "feedforward": 64}
SMALL_SIZES = {"depth": 2, "width": 64, "heads": 4, "feedforward": 256}
TINY_TRAIN = TrainConfig(steps=3, batch_size=4, evaluate_every=3, save_every=3, log_every=1)


def small_train(steps: int, *, batch_size: int = 32, rate: float = 3e-3) -> TrainConfig:
    """The training of scale small. RAdam with β₂ = 0.999 takes small steps for longer than half of such a run."""
    return TrainConfig(
        steps=steps,
        batch_size=batch_size,
        optimizer="adamw",
        learning_rate=rate,
        betas=(0.9, 0.98),
        clip="global",
        schedule="drop",
        drop_at=0.8,
        evaluate_every=steps // 20,
        save_every=200,
    )


def made_experiment(name: str, title: str, config: Callable[[str, str], Any], task: MakeTask) -> Experiment:
    """An experiment with the models and times of all made tasks; `config` takes (model, scale)."""
    return Experiment(name=name, title=title, models=MADE_MODELS, minutes=MADE_MINUTES, config=config, task=task)


Make = Callable[[int, int], ScoredSequences]  # (rows, seed) → a batch
ScoreBatch = Callable[[nn.Module, ScoredSequences], Score]


def sized(model: str, *, dropout: float = 0.0, **sizes: Any) -> ModelConfig:
    """A model of this size with the coefficients of the copy task, and no dropout, since data is endless."""
    return named(model, COEFFICIENTS | {"dropout": dropout, "attention_dropout": dropout} | sizes)


def check_batches(validation: int, test: int) -> None:
    for name, count in (("validation_batches", validation), ("test_batches", test)):
        if count < 1:
            raise ValueError(f"data.{name} must be 1 or more, not {count}")


@dataclass(frozen=True)
class Splits:
    """What is made for each split, and how many batches of it; every kind of test batch is made so many times."""

    train: Make
    validation: Make
    tests: tuple[Make, ...]
    validation_batches: int
    test_batches: int


class MadeTask:
    """A model, and sequences of which some positions are scored. No seed is used in two splits."""

    def __init__(
        self, model: nn.Module, splits: Splits, score: ScoreBatch, *, seed: int, batch_size: int, length: int
    ) -> None:
        self.model = model
        self.splits, self.seed, self.batch_size, self.length = splits, seed, batch_size, length
        self._score = score

    def prepare(self) -> dict[str, Any]:
        return {}  # nothing to load

    def batch(self, step: int, shard: int, shards: int) -> ScoredSequences:
        return self.splits.train(self.batch_size, self._seed(0, step)).rows(shard, shards)

    def validation(self, step: int, shard: int, shards: int) -> Iterator[ScoredSequences]:
        """Fresh batches at every evaluation."""
        for i in range(self.splits.validation_batches):
            made = self.splits.validation(self.batch_size, self._seed(1, step * 1000 + i))
            yield made.rows(shard, shards)

    def test(self, shard: int, shards: int) -> Iterator[ScoredSequences]:
        """The same batches for every model of this seed."""
        for kind, make in enumerate(self.splits.tests):
            for i in range(self.splits.test_batches):
                yield make(self.batch_size, self._seed(2, kind * 1000 + i)).rows(shard, shards)

    def count(self, batch: ScoredSequences) -> Tensor:
        return batch.scored.sum()

    def score(self, model: nn.Module, batch: ScoredSequences) -> Score:
        return self._score(model, batch)

    def part(self, batch: ScoredSequences, index: int, count: int) -> ScoredSequences:
        return batch.cut(part_of(batch.targets.shape[1], index, count))

    def tokens_per_step(self) -> int:
        return self.batch_size * self.length

    def _seed(self, split: int, number: int) -> int:
        return 3 * (self.seed * 10**9 + number) + split


def score_symbols(model: nn.Module, batch: ScoredSequences) -> Score:
    """Cross-entropy and accuracy of the scored positions, and the accuracy of each part."""
    device = next(model.parameters()).device
    scored = batch.scored.to(device, non_blocking=True)
    targets = batch.targets.to(device, non_blocking=True)[scored]
    logits = model(batch.inputs.to(device, non_blocking=True), scored).float()
    hits = logits.argmax(-1) == targets
    parts = {f"accuracy_{name}": part.to(device)[scored] for name, part in batch.parts.items()}
    return Score(
        F.cross_entropy(logits, targets, reduction="sum"),
        scored.sum(),
        {"accuracy": hits.sum(), **{name: hits[part].sum() for name, part in parts.items()}},
        {name: part.sum() for name, part in parts.items()},
    )


def score_numbers(model: nn.Module, batch: ScoredSequences) -> Score:
    """The squared error at the scored positions, that of each yardstick, and both for each part."""
    device = next(model.parameters()).device
    scored = batch.scored.to(device, non_blocking=True)
    targets = batch.targets.to(device, non_blocking=True)[scored]
    errors = {"error": (model(batch.inputs.to(device, non_blocking=True))[scored].float() - targets) ** 2}
    for name, answers in batch.yardsticks.items():
        errors[name] = (answers.to(device)[scored] - targets) ** 2
    sums = {name: error.sum() for name, error in errors.items()}
    counts: dict[str, Tensor] = {}
    for part, mask in batch.parts.items():
        inside = mask.to(device)[scored]
        sums |= {f"{name}_{part}": error[inside].sum() for name, error in errors.items()}
        counts |= {f"{name}_{part}": inside.sum() for name in errors}
    return Score(sums.pop("error"), scored.sum(), sums, counts)
