"""Associative recall of many keys, and the same where keys are written again.

Scale `paper` is the largest setting of Zoology's Figure 2: 64 pairs in 512 tokens, 8,192 symbols, two layers, and as
many steps as 64 passes over 100,000 sequences take.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from ...data.key_values import check_recall, recall_batch
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
class RecallData:
    pairs: int = 8
    rewritten: int = 0  # pairs whose key is written a second time, with another value
    length: int = 64
    vocabulary: int = 256  # half of them keys, half of them values
    power: float = 0.01  # of the gaps between a pair and its question: 1 is uniform, less is shorter
    validation_batches: int = 10
    test_batches: int = 20

    def __post_init__(self) -> None:
        check_batches(self.validation_batches, self.test_batches)
        check_recall(
            pairs=self.pairs,
            length=self.length,
            vocabulary=self.vocabulary,
            rewritten=self.rewritten,
            power=self.power,
        )


@dataclass(frozen=True)
class RecallConfig:
    model: ModelConfig
    data: RecallData
    train: TrainConfig
    positions: bool = True


def recall_config(name: str, model: str, scale: str) -> RecallConfig:
    check_scale(name, scale, lacks=LACKS)
    pairs = {"tiny": 2, "small": 8, "paper": 64}[scale]
    rewritten = pairs // 2 if name == "recall-rewrite" else 0
    if scale == "paper":
        sizes = sized(model, depth=2, width=128, heads=1, feedforward=512, dropout=0.1)
        data = RecallData(pairs, rewritten, 512, 8_192, test_batches=24)
        train = TrainConfig(
            steps=50_000,
            batch_size=128,
            optimizer="adamw",
            weight_decay=0.1,
            clip="global",
            schedule="one-cycle",
            evaluate_every=500,
            save_every=1000,
        )
        return RecallConfig(sizes, data, train)
    if scale == "small":
        steps = 2400 if rewritten else 1200  # softmax attention, too, takes so many to leave the plateau
        return RecallConfig(sized(model, **SMALL_SIZES), RecallData(pairs, rewritten), small_train(steps))
    data = RecallData(pairs, rewritten, 16, 16, validation_batches=1, test_batches=2)
    return RecallConfig(sized(model, **TINY_SIZES), data, TINY_TRAIN)


def recall_task(config: RecallConfig, seed: int, data_dir: Path | None = None) -> MadeTask:
    data = config.data
    torch.manual_seed(seed)
    model = LanguageModel(data.vocabulary + 1, config.model.encoder(causal=True), positions=config.positions)

    def make(rows: int, number: int) -> ScoredSequences:
        return recall_batch(
            rows,
            pairs=data.pairs,
            length=data.length,
            vocabulary=data.vocabulary,
            rewritten=data.rewritten,
            power=data.power,
            seed=number,
        )

    splits = Splits(make, make, (make,), data.validation_batches, data.test_batches)
    return MadeTask(model, splits, score_symbols, seed=seed, batch_size=config.train.batch_size, length=data.length)


RECALL = tuple(
    made_experiment(name, title, partial(recall_config, name), recall_task)
    for name, title in (
        ("recall", "Associative recall of many keys"),
        ("recall-rewrite", "Associative recall, keys written again"),
    )
)
