"""A table of one's own: texts, byte by byte, and their labels; accuracy, F1 and who was taken for whom.

Models have short convolutions: without them a mean over bytes knows little of words.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..data.folder import DataError, data_root
from ..data.labelled_text import LabelledText, load_labelled_text
from ..data.order import batch_rows
from ..models.classifier import SequenceClassifier
from ..training.config import TrainConfig
from ..training.run_directory import RunDirectory, RunError
from ..training.task import Score
from .classification import Batching, Part, examples, logits_of, score_classes
from .experiment import Experiment, check_scale
from .model_config import ModelConfig
from .synthetic.synthetic_task import MADE_MODELS, TINY_SIZES, TINY_TRAIN, sized

LABELS = "labels.json"
VOCABULARY = 257  # every byte, and padding


@dataclass(frozen=True)
class TableData:
    source: str = ""  # a .csv, .tsv or .jsonl file
    text_column: str = "text"
    label_column: str = "label"
    length: int = 256  # bytes of a text that are read
    buckets: int = 4  # a batch is computed in so many parts of like lengths, which saves padding and changes no result

    def __post_init__(self) -> None:
        for name in ("length", "buckets"):
            if getattr(self, name) < 1:
                raise ValueError(f"data.{name} must be 1 or more, not {getattr(self, name)}")
        if self.text_column == self.label_column:
            raise ValueError(f"--text-column and --label-column must be two columns, not {self.text_column!r} twice")


@dataclass(frozen=True)
class TableConfig:
    model: ModelConfig
    data: TableData
    train: TrainConfig


def table_config(model: str, scale: str) -> TableConfig:
    check_scale("table", scale, lacks=("paper",))
    style: dict[str, Any] = {"norm": "pre", "activation": "gelu"}
    if scale == "tiny":
        return TableConfig(_convolved(sized(model, **TINY_SIZES, **style)), TableData(length=32), TINY_TRAIN)
    small = scale == "small"
    sizes = _convolved(sized(model, depth=2, width=128, heads=4, feedforward=256, dropout=0.1, **style))
    steps = 1_000 if small else 6_000
    train = TrainConfig(
        steps=steps,
        batch_size=32,
        optimizer="adamw",
        learning_rate=1e-3,
        betas=(0.9, 0.98),
        weight_decay=0.1,
        clip="global",
        schedule="one-cycle",
        warmup=0.1,
        select="accuracy",
        evaluate_every=steps // 20,
        save_every=steps // 10,
    )
    return TableConfig(sizes, TableData(length=256 if small else 1024), train)


def _convolved(model: ModelConfig) -> ModelConfig:
    """With short convolutions, where its mixer has them as a part."""
    return model.having(convolution="on") if hasattr(model.make_mixer(), "convolution") else model


class TableTask:
    """A classifier and one table. The labels lie in the run directory, so that using the model needs no table."""

    def __init__(self, config: TableConfig, seed: int, data_dir: Path | None = None) -> None:
        self.config, self.seed = config, seed
        self.data_dir = data_root(data_dir)
        self.run: Path | None = None
        self.model: nn.Module  # made when the labels are known
        self._batching = Batching(config.data.buckets)

    def at(self, run: Path) -> None:
        self.run = run
        model, length = self.config.model, self.config.data.length
        torch.manual_seed(self.seed)
        encoder = model.encoder(causal=False, length=length)
        classes = len(self.labels)
        self.model = SequenceClassifier(VOCABULARY, classes, encoder, length=length, dropout=model.dropout)

    def keep(self) -> None:
        assert self.run is not None
        RunDirectory(self.run).write(LABELS, {"labels": list(self.labels)})

    @cached_property
    def _table(self) -> LabelledText:
        data = self.config.data
        if not data.source:
            raise DataError(
                "which table? momentum train table --source data.csv --text-column text --label-column label"
            )
        return load_labelled_text(
            Path(data.source), text=data.text_column, label=data.label_column, length=data.length
        )

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The labels of this run where it has kept them, else those of the table."""
        if self.run is None or not (self.run / LABELS).exists():
            return self._table.labels
        labels = RunDirectory(self.run).read(LABELS).get("labels")
        if not isinstance(labels, list) or len(set(map(str, labels))) < 2 or not all(map(_is_word, labels)):
            raise RunError(f"{self.run / LABELS} is damaged: it must list two labels or more")
        return tuple(labels)

    @cached_property
    def _digest(self) -> str:
        return self._table.splits.digest()

    def prepare(self) -> dict[str, Any]:
        splits = vars(self._table.splits)
        if self._table.labels != self.labels:
            raise DataError(f"{self.config.data.source} has other labels than the run in {self.run} was started with")
        majority = Counter(splits["train"][0].labels.tolist()).most_common(1)[0][0]
        return {
            "source": str(Path(self.config.data.source).resolve()),
            "labels": list(self.labels),
            "examples": {name: len(part[0]) for name, part in splits.items()},
            "majority": float((splits["test"][0].labels == majority).mean()),  # accuracy of always guessing it
            "sha256": self._digest,
        }

    def batch(self, step: int, shard: int, shards: int) -> list[Part]:
        train = self._table.splits.train
        rows = batch_rows(step, batch_size=self.config.train.batch_size, count=len(train[0]), seed=self.seed)
        return self._batching.some(train, rows.numpy()[shard::shards])

    def validation(self, step: int, shard: int, shards: int) -> Iterator[list[Part]]:
        """The same rows at every evaluation."""
        return self._batching.all(self._table.splits.validation, shard, shards)

    def test(self, shard: int, shards: int) -> Iterator[list[Part]]:
        return self._batching.all(self._table.splits.test, shard, shards)

    def count(self, batch: list[Part]) -> Tensor:
        return torch.tensor(examples(batch))

    def score(self, model: nn.Module, batch: list[Part]) -> Score:
        return score_classes(model, batch, confusion=not model.training)

    def condense(self, means: dict[str, Tensor]) -> dict[str, Tensor]:
        """F1 in the place of the confusion matrix."""
        numbers = {name: mean for name, mean in means.items() if name != "confusion"}
        return numbers | {"f1": f1_scores(means["confusion"]).mean()}

    def tokens_per_step(self) -> int:
        return round(self.config.train.batch_size * float(self._table.splits.train[0].lengths.mean()))


def _is_word(label: object) -> bool:
    return isinstance(label, str)


def f1_scores(confusion: Tensor) -> Tensor:
    """(classes,): 2 TP / (2 TP + FP + FN) of counts or shares (true class, predicted class)."""
    confusion = confusion.double()
    f1 = 2 * confusion.diagonal() / (confusion.sum(0) + confusion.sum(1))
    return f1.nan_to_num(0.0)  # a class that occurs neither in the data nor in the predictions


def count_confusions(task: TableTask, folder: Path) -> list[dict[str, Any]]:
    """How often each label of the test split was taken for each, by the best checkpoint."""
    model, classes = task.model.eval(), len(task.labels)
    confusion = torch.zeros(classes, classes, dtype=torch.long)
    with torch.no_grad():
        for batch in task.test(0, 1):
            for part in batch:
                guesses = logits_of(model, part).argmax(-1).cpu()
                confusion += torch.bincount(part.labels * classes + guesses, minlength=classes**2).view(classes, -1)
    scores = dict(zip(task.labels, f1_scores(confusion).tolist(), strict=True))
    return [{"kind": "confusion", "labels": list(task.labels), "counts": confusion.tolist(), "f1": scores}]


TABLE = Experiment(
    name="table",
    title="Labels of texts, a table of your own",
    models=MADE_MODELS,
    minutes={"tiny": "seconds", "small": "4 minutes", "medium": "an hour"},
    config=table_config,
    task=TableTask,
    samples=count_confusions,
    use="momentum predict RUN",
)
