"""State tracking: parity, and the word problem of the permutations of three letters. Trained short, tested long.

Models have no positions here, so that a longer word brings nothing but more of the same. Scale `paper` is of the size
of published trials of state tracking: words of up to 40 elements, tested up to 256, long training in large batches.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from ...data.group_words import Group, product_table, word_batch
from ...data.scored_sequences import ScoredSequences
from ...models.language_model import LanguageModel
from ...training.config import TrainConfig
from ..experiment import check_scale
from ..model_config import ModelConfig
from .synthetic_task import (
    LACKS,
    SMALL_SIZES,
    TINY_SIZES,
    TINY_TRAIN,
    MadeTask,
    Splits,
    check_batches,
    made_experiment,
    score_symbols,
    sized,
    small_train,
)


@dataclass(frozen=True)
class TrackingData:
    length: int = 40  # of the longest word in training, and of all in validation
    shortest: int = 3  # of a word in training
    test_lengths: tuple[int, int, int, int] = (40, 64, 128, 256)
    validation_batches: int = 4
    test_batches: int = 4  # of each length

    def __post_init__(self) -> None:
        check_batches(self.validation_batches, self.test_batches)
        if not 1 <= self.shortest <= self.length:
            raise ValueError(f"data.shortest must be 1 to data.length = {self.length}, not {self.shortest}")
        if min(self.test_lengths) < 1 or len(set(self.test_lengths)) < len(self.test_lengths):
            given = ", ".join(map(str, self.test_lengths))
            raise ValueError(f"data.test_lengths must be four different lengths of 1 or more, not {given}")


@dataclass(frozen=True)
class TrackingConfig:
    model: ModelConfig
    data: TrackingData
    train: TrainConfig
    positions: bool = False


def tracking_config(name: Group, model: str, scale: str) -> TrackingConfig:
    check_scale(name, scale, lacks=LACKS)
    if scale == "paper":
        sizes = sized(model, depth=2, width=128, heads=8, feedforward=512)
        train = TrainConfig(
            steps=50_000,
            batch_size=512,
            optimizer="adamw",
            schedule="one-cycle",
            clip="global",
            evaluate_every=500,
            save_every=1000,
        )
        return TrackingConfig(sizes, TrackingData(), train)
    if scale == "small":
        train = small_train(1000, batch_size=64, rate=2e-3)
        return TrackingConfig(sized(model, **SMALL_SIZES), TrackingData(), train)
    data = TrackingData(length=12, validation_batches=1, test_batches=1)
    return TrackingConfig(sized(model, **TINY_SIZES), data, TINY_TRAIN)


def tracking_task(group: Group, config: TrackingConfig, seed: int, data_dir: Path | None = None) -> MadeTask:
    data = config.data
    torch.manual_seed(seed)
    elements = len(product_table(group))
    model = LanguageModel(elements, config.model.encoder(causal=True), positions=config.positions)

    def train(rows: int, number: int) -> ScoredSequences:
        return word_batch(rows, group=group, length=data.length, shortest=data.shortest, seed=number)

    def validation(rows: int, number: int) -> ScoredSequences:
        return word_batch(rows, group=group, length=data.length, seed=number)

    def test(length: int, rows: int, number: int) -> ScoredSequences:
        return word_batch(rows, group=group, length=length, part=str(length), seed=number)

    tests = tuple(partial(test, length) for length in data.test_lengths)
    splits = Splits(train, validation, tests, data.validation_batches, data.test_batches)
    return MadeTask(model, splits, score_symbols, seed=seed, batch_size=config.train.batch_size, length=data.length)


GROUPS: dict[Group, str] = {"parity": "State tracking: parity", "s3": "State tracking: permutations of three"}
TRACKING = tuple(
    made_experiment(name, title, partial(tracking_config, name), partial(tracking_task, name))
    for name, title in GROUPS.items()
)
