"""Batches of labelled sequences of different lengths, and how their classes are scored."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (the field's name for it)
from torch import Tensor, nn

from ..data.sequences import Sequences
from ..training.task import Score

EVALUATION_TOKENS = 65_536  # of a batch: without gradients it may be larger than in training


class Part(NamedTuple):
    """Sequences of like lengths."""

    inputs: tuple[Tensor | None, ...]  # tokens (b, n) and mask (b, n), of one sequence or of a pair
    labels: Tensor  # (b,)


@dataclass(frozen=True)
class Batching:
    """How rows of a split, one `Sequences` for each input of the model, become batches."""

    buckets: int = 1  # a training batch is computed in so many parts of like lengths, which saves padding
    padded: int | None = None  # every sequence is padded to this length, instead of that of the longest beside it
    mask_zeros: bool = False  # token 0 is taken for padding, also where it is data

    def some(self, split: tuple[Sequences, ...], rows: np.ndarray) -> list[Part]:
        """These rows, in buckets."""
        return self._parts(split, rows, self.buckets)

    def all(self, split: tuple[Sequences, ...], shard: int, shards: int) -> Iterator[list[Part]]:
        """Every example once, those of like lengths together."""
        lengths = np.max([sequences.lengths for sequences in split], axis=0)
        order = np.argsort(lengths, kind="stable")[shard::shards]
        while len(order):
            width = self.padded or int(lengths[order[-1]])
            size = max(1, EVALUATION_TOKENS // (width * len(split)))
            yield self._parts(split, order[-size:], 1)
            order = order[:-size]

    def _parts(self, split: tuple[Sequences, ...], rows: np.ndarray, buckets: int) -> list[Part]:
        longest = np.max([sequences.lengths[rows] for sequences in split], axis=0)
        rows = rows[np.argsort(longest, kind="stable")]
        groups = [group for group in np.array_split(rows, buckets) if len(group)]
        return [self._part(split, group) for group in groups]

    def _part(self, split: tuple[Sequences, ...], rows: np.ndarray) -> Part:
        inputs: list[Tensor | None] = []
        for sequences in split:
            tokens = torch.from_numpy(sequences.rows(rows, self.padded))
            real = torch.arange(tokens.shape[1]) < torch.from_numpy(sequences.lengths[rows])[:, None]
            mask = tokens != 0 if self.mask_zeros else real
            inputs += [tokens, None if bool(mask.all()) else mask]
        return Part(tuple(inputs), torch.from_numpy(split[0].labels[rows]))


def examples(batch: list[Part]) -> int:
    return sum(len(part.labels) for part in batch)


def logits_of(model: nn.Module, part: Part) -> Tensor:
    device = next(model.parameters()).device
    inputs = (None if x is None else x.to(device, non_blocking=True) for x in part.inputs)
    logits: Tensor = model(*inputs)
    return logits.float()


def score_classes(model: nn.Module, batch: list[Part], *, confusion: bool = False) -> Score:
    """Cross-entropy and accuracy; with `confusion` also how often each class (row) was taken for each (column)."""
    losses, sums = [], []
    for part in batch:
        logits = logits_of(model, part)
        labels = part.labels.to(logits.device, non_blocking=True)
        losses.append(F.cross_entropy(logits, labels, reduction="sum"))
        guesses, classes = logits.argmax(-1), logits.shape[-1]
        found = {"accuracy": (guesses == labels).sum()}
        if confusion:
            pairs = torch.bincount(labels * classes + guesses, minlength=classes * classes)
            found["confusion"] = pairs.view(classes, classes)
        sums.append(found)
    count = torch.tensor(examples(batch), device=losses[0].device)
    totals = {name: torch.stack([found[name] for found in sums]).sum(0) for name in sums[0]}
    return Score(torch.stack(losses).sum(), count, totals)
