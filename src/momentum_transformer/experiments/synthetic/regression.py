"""Linear regression in context: attention as a method that fits, beside the methods themselves.

Scale `paper` has the size of Garg et al.: 20 dimensions, 41 points, 12 layers of width 256, 500,000 steps of 64
sequences, without their curriculum.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from ...data.linear_functions import check_regression, regression_batch
from ...data.scored_sequences import ScoredSequences
from ...models.sequence_regressor import SequenceRegressor
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
    score_numbers,
    sized,
    small_train,
)


@dataclass(frozen=True)
class RegressionData:
    dimension: int = 8
    points: int = 32  # pairs of x and y before the last x
    paired: bool = True  # whether the token of y holds its x, too: else a layer must look at the token before
    noise: float = 0.0  # standard deviation of what is added to y
    validation_batches: int = 10
    test_batches: int = 40

    def __post_init__(self) -> None:
        check_batches(self.validation_batches, self.test_batches)
        check_regression(dimension=self.dimension, points=self.points, noise=self.noise)


@dataclass(frozen=True)
class RegressionConfig:
    model: ModelConfig
    data: RegressionData
    train: TrainConfig
    positions: bool = True

    def __post_init__(self) -> None:
        if self.train.select != "loss":
            raise ValueError(f"train.select must be loss for regression, which has no {self.train.select}")


def regression_config(model: str, scale: str) -> RegressionConfig:
    check_scale("regression", scale, lacks=LACKS)
    if scale == "paper":
        sizes = sized(model, depth=12, width=256, heads=8, feedforward=1024, norm="pre", activation="gelu")
        train = TrainConfig(
            steps=500_000,
            optimizer="adam",
            weight_decay=0.0,
            clip="none",
            learning_rate=1e-4,
            evaluate_every=1000,
            save_every=1000,
        )
        return RegressionConfig(sizes, RegressionData(dimension=20, points=40, paired=False), train)
    if scale == "small":
        return RegressionConfig(sized(model, **SMALL_SIZES), RegressionData(), small_train(1500, rate=2e-3))
    data = RegressionData(dimension=3, points=5, validation_batches=1, test_batches=2)
    return RegressionConfig(sized(model, **TINY_SIZES), data, TINY_TRAIN)


def regression_task(config: RegressionConfig, seed: int, data_dir: Path | None = None) -> MadeTask:
    data = config.data
    torch.manual_seed(seed)
    encoder = config.model.encoder(causal=True)
    model = SequenceRegressor(data.dimension + 1, encoder, positions=config.positions)

    def make(rows: int, number: int, *, compare: bool = False, apart: bool = False) -> ScoredSequences:
        return regression_batch(
            rows,
            dimension=data.dimension,
            points=data.points,
            noise=data.noise,
            paired=data.paired,
            compare=compare,
            apart=apart,
            seed=number,
        )

    splits = Splits(
        make,
        partial(make, compare=True),
        (partial(make, compare=True, apart=True),),
        data.validation_batches,
        data.test_batches,
    )
    length = 2 * data.points + 1
    return MadeTask(model, splits, score_numbers, seed=seed, batch_size=config.train.batch_size, length=length)


REGRESSION = made_experiment("regression", "Linear regression in context", regression_config, regression_task)
