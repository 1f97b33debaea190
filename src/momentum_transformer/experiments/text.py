"""Language models of any text, tiny Shakespeare unless files are named.

Scale `small` is nanoGPT's setting for a CPU, and `paper` the one for a GPU: their sizes, batches, contexts and steps.
Tokens are bytes, which of an English text are its characters, unless characters or pieces are asked for. Scored is the
whole last tenth of the text, in windows of the context's length: nats a token as the loss, bits a byte, and nats a
character. No token sees one of another document, and the first one of a document is not scored.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F  # noqa: N812 (the field's name for it)
from torch import Tensor, nn

from ..data.folder import DataError, data_root
from ..data.packed_text import TEST, PackedText, Windows, learn_units, load_packed
from ..data.plain_text import shakespeare_file, text_files
from ..data.units import BYTES, Units, digest_of, load_units, save_units
from ..generation.tokens import Sampling, Writer
from ..models.language_model import LanguageModel
from ..training.config import TrainConfig
from ..training.task import Score, part_of
from .experiment import Experiment, Study, check_scale
from .gap import GAP_MODELS
from .model_config import ModelConfig
from .synthetic.synthetic_task import LACKS, MADE_MODELS, TINY_SIZES, TINY_TRAIN, sized

EVALUATION_TOKENS = 16_384  # of a batch: without gradients it may be larger than in training
SAMPLE_TOKENS = 200  # written at each evaluation
VOCABULARY = "vocabulary.json"  # in the run directory
MOST_PIECES = 2**16


@dataclass(frozen=True)
class TextData:
    source: str = ""  # files and folders with commas between them; without any it is tiny Shakespeare
    context: int = 64
    validation: float = 0.03  # the share of the text, from its beginning, that is held out for choosing
    units: Literal["bytes", "characters"] = "bytes"
    pieces: int = 0  # so many pieces (byte-level BPE) instead
    separator: str = ""  # what stands between documents; a file always is one by itself

    def __post_init__(self) -> None:
        if self.context < 1:
            raise ValueError(f"data.context must be 1 or more, not {self.context}")
        if not 0 < self.validation < 1 - TEST:
            raise ValueError(
                f"data.validation is a share of the text, between 0 and {1 - TEST:g}, not {self.validation}"
            )
        if self.pieces and not BYTES < self.pieces <= MOST_PIECES:
            raise ValueError(f"data.pieces must be {BYTES + 1} to {MOST_PIECES:,}, or 0 for none, not {self.pieces}")
        if self.pieces and self.units != "bytes":
            raise ValueError("data.pieces are made of bytes; leave out data.units, or data.pieces")

    def sources(self) -> list[Path]:
        whole = Path(self.source)
        return [whole] if whole.exists() else [Path(name) for name in self.source.split(",")]


@dataclass(frozen=True)
class TextConfig:
    model: ModelConfig
    data: TextData
    train: TrainConfig
    positions: Literal["own", "on", "off"] = "own"  # own: in the modern block only where the mixer knows no order
    tied: Literal["own", "on", "off"] = "own"  # one embedding for input and output; own: in the modern block

    def __post_init__(self) -> None:
        if self.train.select != "loss":
            raise ValueError(f"train.select must be loss for text, which has no {self.train.select}")

    def has_positions(self) -> bool:
        if self.positions != "own":
            return self.positions == "on"
        return self.model.block == "paper" or not self.model.knows_order()

    def wider(self, vocabulary: int) -> int:
        """Parameters of the embedding that softmax attention, beside its positions, does not have."""
        whole = self.positions == "own" and not (self.has_positions() or self.is_tied())
        return vocabulary * (self.model.width - self.model.width // 2) if whole else 0

    def is_tied(self) -> bool:
        return self.model.block == "modern" if self.tied == "own" else self.tied == "on"


def text_config(model: str, scale: str) -> TextConfig:
    check_scale("text", scale, lacks=LACKS)
    if scale == "tiny":
        sizes = sized(model, **TINY_SIZES, block="modern")
        return TextConfig(sizes, TextData(context=16, validation=0.002), TINY_TRAIN)
    small = scale == "small"
    sizes = sized(
        model,
        depth=4 if small else 6,
        width=128 if small else 384,
        heads=4 if small else 6,
        feedforward=512 if small else 1536,
        dropout=0.0 if small else 0.2,
        block="modern",
        decay_steps=(0.001, 0.1),  # text may forget
    )
    train = TrainConfig(
        steps=2000 if small else 5000,
        batch_size=12 if small else 64,
        optimizer="adamw",
        learning_rate=1e-3,
        betas=(0.9, 0.99),
        weight_decay=0.1,
        decayed="matrices",
        clip="global",
        schedule="cosine",
        warmup=0.05 if small else 0.02,
        final_rate=1e-4,
        evaluate_every=200 if small else 250,
        save_every=200 if small else 250,
    )
    # in so few steps an embedding that also makes the logits learns less, most of all beside positions
    return TextConfig(sizes, TextData(context=64 if small else 256), train, tied="off" if small else "own")


class TextTask:
    """Windows of the text from random places to train on; to validate and test on, all of them side by side."""

    def __init__(self, config: TextConfig, seed: int, data_dir: Path | None = None) -> None:
        self.config = config
        self.seed = seed
        self.data_dir = data_root(data_dir)
        self.run: Path | None = None

    def at(self, run: Path) -> None:
        self.run = run

    def keep(self) -> None:
        """The vocabulary goes with the weights."""
        assert self.run is not None
        save_units(self.units, self.run / VOCABULARY)

    @cached_property
    def language_model(self) -> LanguageModel:
        config, vocabulary = self.config, self.config.data.pieces or BYTES
        if config.data.units == "characters":
            vocabulary = len(self.units.tokens)
        torch.manual_seed(self.seed)
        encoder = config.model.encoder(causal=True, beside=config.wider(vocabulary))
        return LanguageModel(vocabulary, encoder, positions=config.has_positions(), tied=config.is_tied())

    @property
    def model(self) -> nn.Module:
        return self.language_model

    @cached_property
    def files(self) -> list[Path]:
        data = self.config.data
        return text_files(data.sources()) if data.source else [shakespeare_file(self.data_dir)]

    @cached_property
    def units(self) -> Units:
        """The units of the run where it has kept them, else learned from the text."""
        if self.run is not None and (self.run / VOCABULARY).exists():
            return load_units(self.run / VOCABULARY)
        data = self.config.data
        characters = data.units == "characters"
        return learn_units(
            self.files,
            separator=data.separator,
            pieces=data.pieces,
            characters=characters,
            validation=data.validation,
        )

    @cached_property
    def text(self) -> PackedText:
        return load_packed(self.files, self.units, separator=self.config.data.separator)

    @cached_property
    def parts(self) -> dict[str, range]:
        """Places of the tokens for training, validation and test."""
        parts, context = self.text.split(self.config.data.validation), self.config.data.context
        texts = ", ".join(map(str, self.files[:3])) + (", …" if len(self.files) > 3 else "")
        for name, part in parts.items():
            if len(part) <= context:
                raise DataError(
                    f"{texts}: {len(self.text.tokens):,} tokens, of which {len(part):,} are for {name}; a window of "
                    f"data.context = {context} needs more: take more text, or change data.context or data.validation"
                )
        return parts

    def prepare(self) -> dict[str, Any]:
        return {
            "directory": str(self.data_dir.resolve()),
            "files": [str(path) for path in self.files],
            "documents": len(self.text.starts),
            "tokens": {name: len(part) for name, part in self.parts.items()},
            "vocabulary": digest_of(self.units),
            "sha256": self.text.digest,
        }

    def batch(self, step: int, shard: int, shards: int) -> Windows:
        rows, seed = self.config.train.batch_size, (self.seed * 10**9 + step) % 2**63
        found = self.text.random_windows(self.parts["training"], rows, self.config.data.context, seed=seed)
        return found.rows(slice(shard, None, shards))

    def validation(self, step: int, shard: int, shards: int) -> Iterator[Windows]:
        """The same part of the text at every evaluation."""
        return self._windows("validation", shard, shards)

    def test(self, shard: int, shards: int) -> Iterator[Windows]:
        return self._windows("test", shard, shards)

    def count(self, batch: Windows) -> Tensor:
        if batch.begins is None:
            return torch.tensor(batch.tokens[:, 1:].numel())
        return (~batch.begins[:, 1:]).sum()

    def score(self, model: nn.Module, batch: Windows) -> Score:
        device = next(model.parameters()).device
        tokens = batch.tokens.to(device, torch.long, non_blocking=True)
        targets = tokens[:, 1:]
        if batch.begins is None:
            logits = model(tokens[:, :-1]).flatten(0, 1)
            targets = targets.flatten()
        else:
            begins = batch.begins.to(device, non_blocking=True)
            logits = model(tokens[:, :-1], ~begins[:, 1:], reset=begins[:, :-1])
            targets = targets[~begins[:, 1:]]
        nats = F.cross_entropy(logits.float(), targets, reduction="sum")
        size, characters = self._sizes.to(device)[targets].sum(0)
        return Score(
            nats,
            torch.tensor(targets.numel(), device=device),
            {"bits_per_byte": nats / math.log(2), "nats_per_character": nats},
            {"bits_per_byte": size, "nats_per_character": characters},
        )

    def condense(self, means: dict[str, Tensor]) -> dict[str, Tensor]:
        return means | {"perplexity": means["loss"].clamp(max=700).exp()}

    def part(self, batch: Windows, index: int, count: int) -> Windows:
        """Some tokens of each window, with the token after them: the label of the last."""
        inputs = part_of(batch.tokens.shape[1] - 1, index, count)
        return batch.columns(slice(inputs.start, inputs.stop + 1))

    def sample(self) -> str:
        """What the model writes after a line break; of a text without any, after its first token."""
        first = self.units.tokens.index(b"\n") if b"\n" in self.units.tokens else int(self.text.tokens[0])
        writer = Writer(self.language_model, [first], tokens=SAMPLE_TOKENS, context=self.longest())
        written = writer.write(Sampling(temperature=0.8, seed=self.seed))
        return b"".join(self.units.tokens[token] for token in written).decode(errors="replace")

    def longest(self) -> int | None:
        """How many tokens the model may see at once: with positions, as many as in training."""
        return self.config.data.context if self.config.has_positions() else None

    def tokens_per_step(self) -> int:
        return self.config.train.batch_size * self.config.data.context

    @cached_property
    def _sizes(self) -> Tensor:
        """(vocabulary, 2) how many bytes a token has, and how many characters begin in it."""
        sizes = [(len(token), sum(byte & 0xC0 != 0x80 for byte in token)) for token in self.units.tokens]
        return torch.tensor(sizes)

    def _windows(self, part: str, shard: int, shards: int) -> Iterator[Windows]:
        length = self.config.data.context
        found = self.text.windows(self.parts[part], length)
        each = max(1, EVALUATION_TOKENS // length) * shards
        for first in range(shard, len(found.tokens), each):
            yield found.rows(slice(first, first + each, shards))


TEXT = Experiment(
    name="text",
    title="Language models of text",
    models=MADE_MODELS,
    minutes={"tiny": "seconds", "small": "4 minutes", "paper": "needs a GPU"},
    config=text_config,
    task=TextTask,
    use="momentum generate RUN --prompt -",
)
STUDIES = (
    Study(
        "text",
        "Tiny Shakespeare at nanoGPT's setting for a CPU",
        "text",
        GAP_MODELS,  # runs that the gap shares
        section="text",
    ),
)
