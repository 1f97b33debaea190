"""The copy task: Figure 1, both ablations, and the question of the weights.

The protocol is that of the paper's experiments (at scale `paper`): sequences of 128 tokens over 10 symbols, batches of
64, RAdam with decoupled weight decay and clipping by tensor, the rate dropped tenfold after 3,000 of 10,000 steps.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (the field's name for it)
from torch import Tensor, nn

from ..data.copy_sequences import CopyBatch, copy_batch
from ..models.language_model import LanguageModel
from ..training.config import TrainConfig
from ..training.task import Score, part_of
from .experiment import Experiment, Study, Variant, check_scale
from .model_config import ModelConfig, named
from .named_models import FAMILY, MODELS

STEPS_PER_EPOCH = 100

# the caption of Figure 1: seconds per epoch of 100 steps
PAPER_SECONDS_PER_EPOCH = {
    "softmax": 7.1,
    "reformer": 6.9,
    "linear": 6.4,
    "momentum": 6.5,
    "momentum-connection": 6.6,
    "adaptive-momentum": 6.8,
}


@dataclass(frozen=True)
class CopyData:
    length: int = 128
    symbols: int = 10
    validation_batches: int = 20

    def __post_init__(self) -> None:
        if self.length < 8 or self.symbols < 1 or self.validation_batches < 1:
            raise ValueError(
                "data.length must be 8 or more, data.symbols and data.validation_batches 1 or more, "
                f"not {self.length}, {self.symbols} and {self.validation_batches}"
            )


@dataclass(frozen=True)
class CopyConfig:
    model: ModelConfig
    data: CopyData
    train: TrainConfig


# Table 1: β, γ, and β, γ of the connection. Decays of the family start slow: a copy must be remembered to its end.
COEFFICIENTS: dict[str, Any] = {"beta": 0.1, "gamma": 0.6, "connection_beta": 0.99, "connection_gamma": 0.99}
COEFFICIENTS["decay_steps"] = (0.001, 0.02)


def config(model: str, scale: str) -> CopyConfig:
    check_scale("copy", scale)
    if scale == "paper":
        train = TrainConfig(steps=10_000, schedule="drop", drop_at=0.3, evaluate_every=100, save_every=1000)
        return CopyConfig(named(model, COEFFICIENTS), CopyData(), train)
    if scale == "medium":
        sizes = {"depth": 4, "width": 128, "heads": 4, "feedforward": 512}
        data = CopyData(validation_batches=10)
        train = TrainConfig(
            steps=8000,
            batch_size=32,
            learning_rate=1e-3,
            schedule="drop",
            drop_at=0.7,
            evaluate_every=100,
            save_every=300,
        )
    elif scale == "small":
        sizes = {"depth": 4, "width": 64, "heads": 4, "feedforward": 256, "buckets": 8, "chunk_size": 8}
        data = CopyData(length=32, validation_batches=10)
        train = TrainConfig(
            steps=1200,
            batch_size=32,
            learning_rate=2e-3,
            schedule="drop",
            drop_at=0.7,
            evaluate_every=60,
            save_every=300,
        )
    else:
        sizes = {"depth": 2, "width": 16, "heads": 2, "feedforward": 32, "buckets": 4, "chunk_size": 4}
        data = CopyData(length=16, symbols=4, validation_batches=2)
        train = TrainConfig(steps=20, batch_size=8, evaluate_every=10, save_every=10, log_every=5)
    # Deviation: no dropout below paper scale. Data is endless, and dropout costs a fifth of the time.
    no_dropout = {"dropout": 0.0, "attention_dropout": 0.0}
    return CopyConfig(named(model, COEFFICIENTS | sizes | no_dropout), data, train)


class CopyTask:
    """Data made from (seed, step); the mean loss over the separator and the copy."""

    def __init__(self, config: CopyConfig, seed: int, data_dir: Path | None = None) -> None:
        self.config = config
        self.seed = seed
        torch.manual_seed(seed)
        self.model: nn.Module = LanguageModel(config.data.symbols + 1, config.model.encoder(causal=True))

    def prepare(self) -> dict[str, Any]:
        return {}  # nothing to load

    def batch(self, step: int, shard: int, shards: int) -> CopyBatch:
        return self._shard(self._make(2 * (self.seed * 10**9 + step)), shard, shards)

    def validation(self, step: int, shard: int, shards: int) -> Iterator[CopyBatch]:
        """Fresh batches at every evaluation, as the protocol has it."""
        for i in range(self.config.data.validation_batches):
            made = self._make(2 * (self.seed * 10**9 + step * 1000 + i) + 1)
            yield self._shard(made, shard, shards)

    def count(self, batch: CopyBatch) -> Tensor:
        return batch.scored.sum()

    def score(self, model: nn.Module, batch: CopyBatch) -> Score:
        device = next(model.parameters()).device
        tokens, targets, scored = (tensor.to(device, non_blocking=True) for tensor in batch)
        logits = model(tokens)[scored]
        targets = targets[scored]
        loss = F.cross_entropy(logits.float(), targets, reduction="sum")
        return Score(loss, scored.sum(), {"accuracy": (logits.argmax(-1) == targets).sum()})

    def part(self, batch: CopyBatch, index: int, count: int) -> CopyBatch:
        tokens = part_of(batch.tokens.shape[1], index, count)
        return CopyBatch(*(tensor[:, tokens] for tensor in batch))

    def tokens_per_step(self) -> int:
        return self.config.train.batch_size * self.config.data.length

    def _make(self, seed: int) -> CopyBatch:
        data = self.config.data
        return copy_batch(self.config.train.batch_size, length=data.length, symbols=data.symbols, seed=seed)

    @staticmethod
    def _shard(batch: CopyBatch, shard: int, shards: int) -> CopyBatch:
        return CopyBatch(*(tensor[shard::shards] for tensor in batch))


COPY = Experiment(
    name="copy",
    title="Copy task (Figure 1)",
    models=(*MODELS, *FAMILY),
    minutes={"tiny": "seconds", "small": "1 minute", "medium": "an hour", "paper": "hours; a GPU is better"},
    config=config,
    task=CopyTask,
)

BETAS = (0.0, 0.01, 0.1, 0.3, 0.6, 0.9, 0.99)
SWEEP = tuple((beta, gamma) for beta in (0.1, 0.6) for gamma in (0.3, 0.6, 1.0))


def _swept(model: str, weighting: str) -> tuple[Variant, ...]:
    return tuple(
        Variant(model, (f"model.weighting={weighting}", f"model.beta={beta}", f"model.gamma={gamma}"))
        for beta, gamma in SWEEP
    )


STUDIES = (
    Study("copy", "Copy task (Figure 1)", "copy", tuple(Variant(model) for model in MODELS), section="copy"),
    Study(
        "copy-ablation-connection",
        "Ablation: β of the momentum connection",
        "copy",
        (
            *(Variant("momentum-connection", (f"model.connection_beta={beta}",)) for beta in BETAS),
            Variant("adaptive-momentum"),
        ),
        section="copy connection",
    ),
    Study(
        "copy-ablation-beta",
        "Ablation: β of momentum attention",
        "copy",
        tuple(Variant("adaptive-momentum", (f"model.beta={beta}",)) for beta in BETAS),
        section="copy beta",
    ),
    Study(
        "copy-weighting",
        "The paper's weights or the released code's",
        "copy",
        (Variant("linear"), *_swept("momentum", "relative"), *_swept("momentum", "terminal")),
        section="copy weighting",
    ),
    Study(
        "copy-sweep",
        "β and γ of every momentum model",
        "copy",
        (
            Variant("linear"),
            *(variant for model in MODELS if "momentum" in model for variant in _swept(model, "relative")),
        ),
        section="copy coefficients",
    ),
)
