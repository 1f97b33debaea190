"""Selective copying: remember the symbols, pass over the blanks.

Scale `paper` has the published size: 16 symbols of an alphabet of 16 in 4,096 tokens, two layers of width 64.
"""

from dataclasses import dataclass
from pathlib import Path

import torch

from ...data.scored_sequences import ScoredSequences
from ...data.selective_copy import FIRST, check_selective_copy, selective_copy_batch
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
class SelectionData:
    symbols: int = 16  # to be copied
    blanks: int = 64
    alphabet: int = 16
    validation_batches: int = 10
    test_batches: int = 20

    def __post_init__(self) -> None:
        check_batches(self.validation_batches, self.test_batches)
        check_selective_copy(symbols=self.symbols, blanks=self.blanks, alphabet=self.alphabet)


@dataclass(frozen=True)
class SelectionConfig:
    model: ModelConfig
    data: SelectionData
    train: TrainConfig
    positions: bool = True


def selection_config(model: str, scale: str) -> SelectionConfig:
    check_scale("selective-copy", scale, lacks=LACKS)
    if scale == "tiny":
        data = SelectionData(symbols=3, blanks=6, alphabet=4, validation_batches=1, test_batches=2)
        return SelectionConfig(sized(model, **TINY_SIZES), data, TINY_TRAIN)
    sizes = sized(model, **SMALL_SIZES)
    if scale == "small":
        return SelectionConfig(sizes, SelectionData(), small_train(1200))
    train = TrainConfig(steps=400_000, learning_rate=1e-4, evaluate_every=1000, save_every=1000)
    return SelectionConfig(sizes, SelectionData(blanks=4096 - 16), train)


def selection_task(config: SelectionConfig, seed: int, data_dir: Path | None = None) -> MadeTask:
    data = config.data
    torch.manual_seed(seed)
    model = LanguageModel(data.alphabet + FIRST, config.model.encoder(causal=True), positions=config.positions)

    def make(rows: int, number: int) -> ScoredSequences:
        return selective_copy_batch(
            rows, symbols=data.symbols, blanks=data.blanks, alphabet=data.alphabet, seed=number
        )

    splits = Splits(make, make, (make,), data.validation_batches, data.test_batches)
    length = data.blanks + 2 * data.symbols
    return MadeTask(model, splits, score_symbols, seed=seed, batch_size=config.train.batch_size, length=length)


SELECTION = made_experiment("selective-copy", "Selective copying", selection_config, selection_task)
