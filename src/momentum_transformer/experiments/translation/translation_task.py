"""Non-autoregressive translation (Table 5), and the autoregressive teacher it can learn from."""

from collections.abc import Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (the field's name for it)
from torch import Tensor, nn

from ...data.folder import DataError, data_root
from ...data.noise import corrupt
from ...data.parallel_text import ParallelText, TranslationSplits, load_iwslt16, load_multi30k, read_pair
from ...data.subwords import Sentences, Subwords, load_encoded, load_subwords
from ...data.token_batches import TokenBatches, in_order
from ...generation.translation_scores import require_sacrebleu
from ...models.autoregressive_translator import AutoregressiveTranslator
from ...models.nonautoregressive_translator import NonAutoregressiveTranslator
from ...training.run_directory import RunDirectory
from ...training.task import Score
from ..experiment import Experiment, Study, Variant
from .distillation import distilled, teacher_run
from .translation_scales import (
    GATED_STUDENTS,
    STUDENTS,
    TEACHER,
    TRANSLATION_MODELS,
    TranslationConfig,
    translation_config,
)
from .translation_scoring import score_translations

VOCABULARY = "vocabulary.model"
EVALUATION_TOKENS = 8_192
NOISE = 0.3  # the share of a reference that is spoilt


class Pairs(NamedTuple):
    """Sentences and their translations, padded; masks are True where there is a piece."""

    source: Tensor  # (b, s)
    source_mask: Tensor
    target: Tensor  # (b, t), each ends with END
    target_mask: Tensor


def make_translator(config: TranslationConfig) -> NonAutoregressiveTranslator | AutoregressiveTranslator:
    model = config.model
    kind = NonAutoregressiveTranslator if config.decoder == "non-autoregressive" else AutoregressiveTranslator
    return kind(
        config.data.pieces,
        depth=model.depth,
        width=model.width,
        heads=model.heads,
        feedforward=model.feedforward,
        attention=model.make_mixer(),
        residual=model.connection.make(),
        dropout=model.dropout,
    )


class TranslationTask:
    """A translator and one corpus. Text is loaded when it is needed, the vocabulary lies in the run directory."""

    def __init__(self, corpus: str, config: TranslationConfig, seed: int, data_dir: Path | None = None) -> None:
        self.corpus, self.config, self.seed = corpus, config, seed
        self.data_dir = data_root(data_dir)
        self.run: Path | None = None
        torch.manual_seed(seed)
        self.translator = make_translator(config)
        self.model: nn.Module = self.translator

    def at(self, run: Path) -> None:
        self.run = run

    def keep(self) -> None:
        """The vocabulary goes with the weights."""
        assert self.run is not None
        self.subwords.save(self.run / VOCABULARY)

    @cached_property
    def text(self) -> TranslationSplits:
        """The corpus."""
        return load_corpus(self.corpus, self.config, self.data_dir)

    @cached_property
    def training_text(self) -> ParallelText:
        """The training pairs, with the teacher's translations as targets where there is a teacher."""
        if not self.config.data.teacher:
            return self.text.train
        return distilled(teacher_run(self.config.data.teacher, self.run), self.text.train)

    @cached_property
    def subwords(self) -> Subwords:
        """The vocabulary that this run has kept, else one learned from the training text, before any distillation."""
        data = self.config.data
        if self.run is not None and RunDirectory(self.run).exists() and (self.run / VOCABULARY).exists():
            subwords = Subwords.load(self.run / VOCABULARY)
            kept = RunDirectory(self.run).read("provenance.json").get("data", {}).get("vocabulary")
            if subwords.digest != kept:
                raise DataError(f"{self.run / VOCABULARY} is not the vocabulary that this run was trained with")
            return subwords
        return load_subwords(
            self.text.train,
            pieces=data.pieces,
            source_language=data.source_language,
            target_language=data.target_language,
        )

    @cached_property
    def _train(self) -> tuple[Sentences, Sentences]:
        return self._encoded(self.training_text, "training")

    @cached_property
    def _lengths(self) -> tuple[np.ndarray, np.ndarray]:
        return self._train[0].lengths, self._train[1].lengths

    @cached_property
    def _fitting(self) -> np.ndarray:
        """Rows of the training pairs that are not too long."""
        fitting = np.flatnonzero(np.maximum(*self._lengths) <= self.config.data.longest)
        if not len(fitting):
            raise DataError(f"no pair has {self.config.data.longest} pieces or fewer; set data.longest higher")
        return fitting

    @cached_property
    def _batches(self) -> TokenBatches:
        source, target = (lengths[self._fitting] for lengths in self._lengths)
        return TokenBatches(source, target, tokens=self.config.train.batch_size, seed=self.seed)

    def prepare(self) -> dict[str, Any]:
        require_sacrebleu()  # before hours of training, not after
        data, text, training = self.config.data, self.text, len(self._fitting)
        return {
            "directory": str(self.data_dir.resolve()),
            "pairs": {"training": training, "validation": len(text.validation), "test": len(text.test)},
            "too long": len(text.train) - training,
            "teacher": data.teacher and str(teacher_run(data.teacher, self.run)),
            "vocabulary": self.subwords.digest,
            "note": text.note,
            "corpus": text.digest(),  # by no name that evaluating asks for: this needs a student's teacher
        }

    def batch(self, step: int, shard: int, shards: int) -> Pairs:
        smallest = self._batches.smallest
        if smallest < shards:
            raise DataError(
                f"a batch of {smallest} sentences cannot be split among {shards} processes and accumulations; set "
                "train.batch_size higher, data.longest lower, or use fewer"
            )
        return self._pairs(self._train, self._fitting[self._batches.rows(step)][shard::shards])

    def validation(self, step: int, shard: int, shards: int) -> Iterator[Pairs]:
        """The same pairs at every evaluation."""
        return self._all(self.text.validation, shard, shards)

    def test(self, shard: int, shards: int) -> Iterator[Pairs]:
        return self._all(self.text.test, shard, shards)

    def count(self, batch: Pairs) -> Tensor:
        return batch.target_mask.sum()

    def score(self, model: nn.Module, batch: Pairs) -> Score:
        """Cross entropy over the pieces of the targets; of a non-autoregressive model, of all passes together."""
        batch = Pairs(*(tensor.to(next(model.parameters()).device, non_blocking=True) for tensor in batch))
        labels = batch.target[batch.target_mask]
        if self.config.decoder == "autoregressive":
            guess = model(*batch, scored=True)
            sums = {"accuracy": (guess.tokens == labels).sum()}
            return Score(len(labels) * guess.loss, batch.target_mask.sum(), sums)
        noisy = self._noisy(model, batch)
        passes, lengths = model(*batch, iterations=self.config.refine.training, noisy=noisy, scored=True)
        loss = len(labels) * torch.stack([guess.loss for guess in passes]).sum()
        assert isinstance(self.translator, NonAutoregressiveTranslator)
        offsets = self.translator.length_labels(batch.source_mask, batch.target_mask)
        # a sentence counts as one piece; its gradient reaches the length predictor alone
        loss = loss + F.cross_entropy(lengths.float(), offsets, reduction="sum")
        hits = (lengths.argmax(-1) == offsets) * batch.target_mask.sum(1)
        sums = {"accuracy": (passes[-1].tokens == labels).sum(), "length_accuracy": hits.sum()}
        return Score(loss, batch.target_mask.sum(), sums)

    def tokens_per_step(self) -> int:
        return self.config.train.batch_size

    def _noisy(self, model: nn.Module, batch: Pairs) -> list[Tensor | None]:
        """For each pass but the first, a spoilt reference or nothing, as the random numbers of this step decide."""
        refine = self.config.refine
        if not model.training or not refine.denoise:
            return []
        generator = torch.Generator().manual_seed(int(torch.randint(2**62, ())))
        target, lengths = batch.target.cpu(), batch.target_mask.sum(1).cpu()
        noisy: list[Tensor | None] = []
        for _ in range(refine.training - 1):
            if float(torch.rand((), generator=generator)) < refine.denoise:
                spoilt = corrupt(
                    target, lengths, vocabulary=self.config.data.pieces, weight=NOISE, generator=generator
                )
                noisy.append(spoilt.to(batch.target.device))
            else:
                noisy.append(None)
        return noisy

    def _all(self, text: ParallelText, shard: int, shards: int) -> Iterator[Pairs]:
        sentences = self._encoded(text, "validation or test")
        for rows in in_order(*(side.lengths for side in sentences), tokens=EVALUATION_TOKENS, by_length=True):
            if len(rows[shard::shards]):
                yield self._pairs(sentences, rows[shard::shards])

    def _encoded(self, text: ParallelText, part: str) -> tuple[Sentences, Sentences]:
        source, target = load_encoded(text, self.subwords, self.corpus)
        if len(empty := np.flatnonzero(source.lengths == 0)):
            raise DataError(f"{part} text, pair {empty[0] + 1}: the source has no piece of the vocabulary; remove it")
        return source, target

    @staticmethod
    def _pairs(sentences: tuple[Sentences, Sentences], rows: np.ndarray) -> Pairs:
        padded = []
        for side in sentences:
            tokens, lengths = side.rows(rows)
            padded += [torch.from_numpy(tokens), torch.from_numpy(np.arange(tokens.shape[1]) < lengths[:, None])]
        return Pairs(*padded)


def load_corpus(corpus: str, config: TranslationConfig, root: Path) -> TranslationSplits:
    """The text of an experiment."""
    data = config.data
    if corpus != "translation" and (data.source or data.validation_source or data.test_source):
        raise DataError(f"{corpus} has a text of its own; for yours: momentum train translation --source A --target B")
    if corpus == "multi30k":
        return load_multi30k(root)
    if corpus == "iwslt16":
        return load_iwslt16(root)
    if not data.source:
        raise DataError("which text? momentum train translation --source train.en --target train.de")
    train, others = read_pair(Path(data.source), Path(data.target)), []
    for source, target in ((data.validation_source, data.validation_target), (data.test_source, data.test_target)):
        if source:
            others.append(read_pair(Path(source), Path(target)))
        else:
            train, held_out = hold_out_pairs(train)
            others.append(held_out)
    return TranslationSplits(train, others[0], others[1], note="")


def hold_out_pairs(text: ParallelText) -> tuple[ParallelText, ParallelText]:
    """The pairs to train on, and those held out: every twentieth pair, at most 1,000 of them."""
    count = min(1_000, len(text) // 20)
    if not count:
        raise DataError(
            f"{len(text)} pairs are too few to hold some out for validation and test; give 40 or more, or name files"
        )
    out = {i * len(text) // count for i in range(count)}
    sides = text.sources, text.targets
    kept, held_out = (
        ParallelText(*([line for i, line in enumerate(side) if (i in out) == wanted] for side in sides))
        for wanted in (False, True)
    )
    return kept, held_out


def _experiment(name: str, title: str, small: str) -> Experiment:
    return Experiment(
        name=name,
        title=title,
        models=(*TRANSLATION_MODELS, *GATED_STUDENTS),
        minutes={"tiny": "seconds", "small": small, "medium": "an hour", "paper": "needs a GPU"},
        config=partial(translation_config, name),
        task=partial(TranslationTask, name),
        samples=score_translations,
        use="momentum translate RUN",
    )


TRANSLATIONS = (
    _experiment("multi30k", "Translation, Multi30k English → German", "10 minutes"),
    _experiment("iwslt16", "Translation, IWSLT'16 English → German (Table 5)", "10 minutes"),
    _experiment("translation", "Translation, text files of your own", "10 minutes"),
)
VARIANTS = (
    *(Variant(model) for model in TRANSLATION_MODELS),
    *(Variant(model, (f"data.teacher={TEACHER}",), waits=True) for model in STUDENTS),
)
STUDIES = (
    Study(
        "translation",
        "Non-autoregressive translation (Table 5), Multi30k",
        "multi30k",
        VARIANTS,
        section="translation",
    ),
    Study(
        "translation-iwslt16",
        "Non-autoregressive translation (Table 5), IWSLT'16",
        "iwslt16",
        VARIANTS,
        section="translation",
    ),
)
