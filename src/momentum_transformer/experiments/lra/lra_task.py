"""Long Range Arena: five tasks and Table 4, by the paper's equations or as the authors' released code has it."""

from collections import Counter
from collections.abc import Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...data.folder import data_root
from ...data.grey_images import load_grey_images
from ...data.listops import load_listops
from ...data.movie_reviews import load_text
from ...data.order import batch_rows
from ...data.pathfinder import load_pathfinder
from ...data.retrieval import load_retrieval
from ...data.sequences import Sequences, Splits
from ...models.classifier import BagOfTokens, PairClassifier, SequenceClassifier
from ...training.task import Score
from ..classification import Batching, Part, examples, score_classes
from ..experiment import Experiment, Study, Variant
from .lra_scales import LRA_MODELS, PAPER_LRA_MODELS, TASKS, LraConfig, lra_config


class LraTask:
    """A classifier and one task. Data is loaded when it is needed."""

    def __init__(self, name: str, config: LraConfig, seed: int, data_dir: Path | None = None) -> None:
        self.name, self.config, self.seed = name, config, seed
        self.data_dir = data_root(data_dir)
        facts, length = TASKS[name], config.data.positions
        padded = length if config.protocol.padded else None
        self._batching = Batching(config.data.buckets, padded, config.protocol.mask_zeros)
        torch.manual_seed(seed)
        self.model: nn.Module
        if config.classifier == "bag-of-tokens":
            self.model = BagOfTokens(facts.vocabulary, facts.classes, pair=facts.pair)
            return
        kind = PairClassifier if facts.pair else SequenceClassifier
        self.model = kind(
            facts.vocabulary,
            facts.classes,
            config.model.encoder(causal=False, length=length),
            length=length,
            dropout=config.model.dropout,
            pool="positions" if config.protocol.padded else "tokens",
        )

    @cached_property
    def splits(self) -> Splits:
        return load_splits(self.name, self.config, self.data_dir)

    @cached_property
    def _digest(self) -> str:
        return self.splits.digest()

    def prepare(self) -> dict[str, Any]:
        parts = vars(self.splits)
        counts = {name: len(part[0]) for name, part in parts.items()}
        majority, _ = Counter(self.splits.train[0].labels.tolist()).most_common(1)[0]
        return {
            "directory": str(self.data_dir.resolve()),
            "examples": counts,
            "official": dict(zip(parts, TASKS[self.name].official, strict=True)),
            "longest": max(int(sequences.lengths.max()) for part in parts.values() for sequences in part),
            "majority": float((self.splits.test[0].labels == majority).mean()),  # accuracy of always guessing it
            "sha256": self._digest,
        }

    def batch(self, step: int, shard: int, shards: int) -> list[Part]:
        train = self.splits.train
        rows = batch_rows(step, batch_size=self.config.train.batch_size, count=len(train[0]), seed=self.seed)
        return self._batching.some(train, rows.numpy()[shard::shards])

    def validation(self, step: int, shard: int, shards: int) -> Iterator[list[Part]]:
        """The same examples at every evaluation."""
        return self._batching.all(self.splits.validation, shard, shards)

    def test(self, shard: int, shards: int) -> Iterator[list[Part]]:
        return self._batching.all(self.splits.test, shard, shards)

    def count(self, batch: list[Part]) -> Tensor:
        return torch.tensor(examples(batch))

    def score(self, model: nn.Module, batch: list[Part]) -> Score:
        return score_classes(model, batch)

    def tokens_per_step(self) -> int:
        return round(self.config.train.batch_size * sum(float(part.lengths.mean()) for part in self.splits.train))


def load_splits(name: str, config: LraConfig, root: Path) -> Splits:
    """The data of a task, cut to the lengths and numbers of examples that are asked for."""
    data = config.data
    match name:
        case "lra-listops":
            sizes = zip((data.train, data.validation, data.test), TASKS[name].official, strict=True)
            train, validation, test = (asked or whole for asked, whole in sizes)
            return load_listops(root, lengths=(data.shortest, data.length), sizes=(train, validation, test))
        case "lra-text":
            splits = load_text(root, validate_on_test=config.protocol.validate_on_test)
        case "lra-retrieval":
            splits = load_retrieval(root)
        case "lra-image":
            splits = load_grey_images(root)
        case _:
            splits = load_pathfinder(root, difficulty=data.difficulty, count=data.examples, generated=data.generated)
    sizes_asked = (data.train, data.validation, data.test)
    return Splits(
        *(
            tuple(_first(sequences, asked).cut(data.length) for sequences in part)
            for part, asked in zip(vars(splits).values(), sizes_asked, strict=True)
        )
    )


def _first(sequences: Sequences, asked: int) -> Sequences:
    """As many examples as are asked for, spread evenly over all: files may be sorted by label."""
    if not 0 < asked < len(sequences):
        return sequences
    return sequences.take(np.linspace(0, len(sequences) - 1, asked).round().astype(int))


_WEEKS = "weeks; a GPU is better"
TIMES = {
    "lra-listops": {"small": "4 minutes", "medium": "an hour", "paper": "a day"},
    "lra-text": {"small": "4 minutes", "medium": "an hour", "paper": _WEEKS},
    "lra-retrieval": {"small": "4 minutes", "medium": "an hour", "paper": _WEEKS},
    "lra-image": {"small": "5 minutes", "medium": "an hour", "paper": _WEEKS},
    "lra-pathfinder": {"small": "5 minutes", "paper": _WEEKS},
}
LRA = tuple(
    Experiment(
        name=name,
        title=f"Long Range Arena: {facts.title} (Table 4)",
        models=LRA_MODELS,
        minutes={"tiny": "seconds", **TIMES[name]},
        config=partial(lra_config, name),
        task=partial(LraTask, name),
    )
    for name, facts in TASKS.items()
)
_FIRST, *_OTHERS = TASKS
STUDIES = (
    Study(
        "lra",
        "Long Range Arena (Table 4)",
        _FIRST,
        tuple(Variant(model) for model in PAPER_LRA_MODELS),
        tuple(_OTHERS),
        section="lra",
    ),
    Study(
        "lra-released",
        "Long Range Arena (Table 4), as the released code has it",
        _FIRST,
        tuple(Variant(model, ("fidelity=released",)) for model in PAPER_LRA_MODELS),
        tuple(_OTHERS),
        section="lra",
    ),
)
