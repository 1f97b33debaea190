"""Text byte by byte, tiny Shakespeare unless another file is named.

Scale `small` is nanoGPT's setting for a CPU, and `paper` the one for a GPU: their sizes, batches, contexts and steps.
Scored is the whole last tenth of the text, in windows of the context's length: nats a byte as the loss, the same in
bits, and nats a character, which are those of a byte in a text without accents.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (the field's name for it)
from torch import Tensor, nn

from ..data.byte_text import BYTES, ByteText, load_bytes, load_shakespeare, random_windows, windows
from ..data.folder import DataError, data_root
from ..models.language_model import LanguageModel
from ..training.config import TrainConfig
from ..training.task import Score, part_of
from .experiment import Experiment, check_scale
from .made import LACKS, MADE_MODELS, TINY_SIZES, TINY_TRAIN, sized
from .models import ModelConfig

EVALUATION_BYTES = 16_384  # of a batch: without gradients it may be larger than in training
CONTINUES = 0xC0, 0x80  # a byte inside a character of UTF-8: its mask, and what is left by it


@dataclass(frozen=True)
class TextData:
    source: str = ""  # a file; without one it is tiny Shakespeare
    context: int = 64
    validation: float = 0.03  # the share of the text that is held out for choosing

    def __post_init__(self) -> None:
        if self.context < 1:
            raise ValueError(f"data.context must be 1 or more, not {self.context}")
        if not 0 < self.validation < 0.9:
            raise ValueError(f"data.validation is a share of the text, between 0 and 0.9, not {self.validation}")


@dataclass(frozen=True)
class TextConfig:
    model: ModelConfig
    data: TextData
    train: TrainConfig
    positions: bool = True

    def __post_init__(self) -> None:
        if self.train.select != "loss":
            raise ValueError(f"train.select must be loss for text, which has no {self.train.select}")


def text_config(model: str, scale: str) -> TextConfig:
    check_scale("text", scale, lacks=LACKS)
    if scale == "tiny":
        sizes = sized(model, **TINY_SIZES, norm="pre", activation="gelu")
        return TextConfig(sizes, TextData(context=16, validation=0.002), TINY_TRAIN)
    small = scale == "small"
    sizes = sized(
        model,
        depth=4 if small else 6,
        width=128 if small else 384,
        heads=4 if small else 6,
        feedforward=512 if small else 1536,
        dropout=0.0 if small else 0.2,
        norm="pre",
        activation="gelu",
        decay_steps=(0.001, 0.1),  # text may forget
    )
    train = TrainConfig(
        steps=2000 if small else 5000,
        batch_size=12 if small else 64,
        optimizer="adamw",
        learning_rate=1e-3,
        betas=(0.9, 0.99),
        weight_decay=0.1,
        clip="global",
        schedule="one-cycle",
        warmup=0.05,
        evaluate_every=200 if small else 250,
        save_every=200 if small else 250,
    )
    return TextConfig(sizes, TextData(context=64 if small else 256), train)


class TextTask:
    """Windows of the text from random places to train on; to validate and test on, all of them side by side."""

    def __init__(self, config: TextConfig, seed: int, data_dir: Path | None = None) -> None:
        self.config = config
        self.seed = seed
        self.data_dir = data_root(data_dir)
        torch.manual_seed(seed)
        encoder = config.model.encoder(causal=True)
        self.model: nn.Module = LanguageModel(BYTES, encoder, positions=config.positions)

    @cached_property
    def _text(self) -> ByteText:
        data = self.config.data
        if data.source:
            text = load_bytes(Path(data.source), validation=data.validation)
        else:
            text = load_shakespeare(self.data_dir, validation=data.validation)
        shortest = min(map(len, text[:3]))
        if shortest <= data.context:
            raise DataError(
                f"a window of data.context = {data.context} does not fit into {shortest} bytes of the text"
            )
        return text

    def prepare(self) -> dict[str, Any]:
        text = self._text
        counts = {"training": len(text.train), "validation": len(text.validation), "test": len(text.test)}
        return {"directory": str(self.data_dir.resolve()), "bytes": counts, "sha256": text.digest}

    def batch(self, step: int, shard: int, shards: int) -> Tensor:
        rows, seed = self.config.train.batch_size, (self.seed * 10**9 + step) % 2**63
        return random_windows(self._text.train, rows, self.config.data.context, seed=seed)[shard::shards]

    def validation(self, step: int, shard: int, shards: int) -> Iterator[Tensor]:
        """The same part of the text at every evaluation."""
        return self._parts(self._text.validation, shard, shards)

    def test(self, shard: int, shards: int) -> Iterator[Tensor]:
        return self._parts(self._text.test, shard, shards)

    def count(self, batch: Tensor) -> Tensor:
        return torch.tensor(batch[:, 1:].numel())

    def score(self, model: nn.Module, batch: Tensor) -> Score:
        batch = batch.to(next(model.parameters()).device, torch.long, non_blocking=True)
        targets = batch[:, 1:]
        nats = F.cross_entropy(model(batch[:, :-1]).float().transpose(1, 2), targets, reduction="sum")
        mask, inside = CONTINUES
        characters = ((targets & mask) != inside).sum()
        return Score(
            nats,
            torch.tensor(targets.numel(), device=nats.device),
            {"bits_per_byte": nats / math.log(2), "nats_per_character": nats},
            {"nats_per_character": characters},
        )

    def part(self, batch: Tensor, index: int, count: int) -> Tensor:
        """With the byte after the part, which its last one must say."""
        inputs = part_of(batch.shape[1] - 1, index, count)
        return batch[:, inputs.start : inputs.stop + 1]

    def tokens_per_step(self) -> int:
        return self.config.train.batch_size * self.config.data.context

    def _parts(self, text: Tensor, shard: int, shards: int) -> Iterator[Tensor]:
        length = self.config.data.context
        yield from windows(text, length)[shard::shards].split(max(1, EVALUATION_BYTES // length))


TEXT = Experiment(
    name="text",
    title="Text byte by byte",
    models=MADE_MODELS,
    minutes={"tiny": "seconds", "small": "4 minutes", "paper": "needs a GPU"},
    config=text_config,
    task=TextTask,
)
