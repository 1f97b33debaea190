"""Text in, text out, with a trained translation run."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...data.folder import DataError
from ...data.subwords import PADDING, Subwords
from ...generation.sentences import refine, translate_greedily
from ...models.autoregressive_translator import AutoregressiveTranslator

if TYPE_CHECKING:
    from .translation_task import TranslationTask

BATCH_TOKENS = 4_096
SENTENCE_END = re.compile(r"(?<=[.!?;:…])\s+")
FAR = 4  # a line may be this many times as long as the longest training sentence; longer ones translate to nonsense
UNKNOWN = 0.5  # a line with a larger share of unknown pieces is in a script that the vocabulary does not know


class LineError(DataError):
    """A line that cannot be translated."""


@dataclass(frozen=True)
class Translation:
    """One line. `steps` has the pieces after the first draft and after each refinement."""

    text: str
    steps: tuple[tuple[int, ...], ...]
    pieces: int  # of the source


class Translator:
    """A trained run; `refinements` and `until_fixed` say how long a translation is polished."""

    def __init__(self, task: "TranslationTask", *, refinements: int | None = None, until_fixed: bool = False) -> None:
        self.model = task.translator.eval()
        self.subwords: Subwords = task.subwords
        self.longest = task.config.data.longest
        self.refinements = task.config.refine.decoding if refinements is None else refinements
        self.until_fixed = until_fixed
        if self.refinements < 0:
            raise DataError(f"--refine must be 0 or more, not {self.refinements}")

    def lines(self, lines: Sequence[str], *, first: int = 1, name: str = "input") -> list[Translation]:
        """Translate lines, of which the first has the number `first`. Empty lines stay empty, long ones are split."""
        parts: list[list[int]] = []
        owners: list[int] = []
        for i, line in enumerate(lines):
            try:
                more = self._parts(line)
            except LineError as error:
                raise LineError(f"{name}, line {first + i}: {error}") from None
            parts += more
            owners += [i] * len(more)
        results = self.pieces(parts)
        found: list[list[tuple[tuple[int, ...], ...]]] = [[] for _ in lines]
        sizes = [0] * len(lines)
        for owner, part, steps in zip(owners, parts, results, strict=True):
            found[owner].append(steps)
            sizes[owner] += len(part)
        return [self._joined(steps, size) for steps, size in zip(found, sizes, strict=True)]

    def steps(self, line: str) -> Iterator[Translation]:
        """One line while it is made: after the first draft, then after each refinement; nothing for an empty line."""
        parts = self._parts(line)
        found: list[list[tuple[int, ...]]] = [[] for _ in parts]
        for drafts in self._drafts(parts, None) if parts else ():
            for steps, draft in zip(found, drafts, strict=True):
                steps.append(draft)
            yield self._joined([tuple(steps) for steps in found], sum(map(len, parts)))

    def pieces(
        self, sources: Sequence[Sequence[int]], *, lengths: Sequence[int] | None = None, tokens: int = BATCH_TOKENS
    ) -> list[tuple[tuple[int, ...], ...]]:
        """The steps of each translation, in the order of the sources; `lengths` are those of the targets, if known."""
        order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
        results: list[tuple[tuple[int, ...], ...]] = [()] * len(sources)
        while order:
            size = max(1, tokens // max(1, len(sources[order[-1]])))
            rows, order = order[-size:], order[:-size]
            known = None if lengths is None else torch.tensor([lengths[i] for i in rows])
            for row, steps in zip(rows, self._batch([sources[i] for i in rows], known), strict=True):
                results[row] = steps
        return results

    def _batch(self, sources: list[Sequence[int]], lengths: Tensor | None) -> Iterator[tuple[tuple[int, ...], ...]]:
        return zip(*self._drafts(sources, lengths), strict=True)

    def _drafts(self, sources: Sequence[Sequence[int]], lengths: Tensor | None) -> Iterator[list[tuple[int, ...]]]:
        """The pieces of all translations, after each step."""
        device = next(self.model.parameters()).device
        width = max(map(len, sources))
        source = torch.tensor([[*pieces, *[PADDING] * (width - len(pieces))] for pieces in sources], device=device)
        mask = torch.arange(width, device=device) < torch.tensor([len(x) for x in sources], device=device)[:, None]
        drafts: Iterable[tuple[Tensor, Tensor]]
        if isinstance(self.model, AutoregressiveTranslator):
            drafts = [translate_greedily(self.model, source, mask)]
        else:
            drafts = refine(
                self.model,
                source,
                mask,
                steps=self.refinements,
                until_fixed=self.until_fixed,
                lengths=None if lengths is None else lengths.to(device),
            )
        for draft in drafts:
            yield [tuple(row[real].tolist()) for row, real in zip(*draft, strict=True)]

    def _parts(self, line: str) -> list[list[int]]:
        """The pieces of a line, or of each of its sentences where it is longer than what the model was trained on."""
        try:
            if self.subwords.unknown_share(line) > UNKNOWN:
                raise LineError(f"the vocabulary of this run does not know the script of {line.strip()[:20]!r}")
            pieces = self.subwords.encode_source(line)
        except DataError as error:
            raise LineError(str(error)) from None
        if len(pieces) <= self.longest:
            return [pieces] if pieces else []
        parts: list[list[int]] = []
        for sentence in SENTENCE_END.split(line.strip()):
            more = self.subwords.encode_source(sentence)
            if len(more) > FAR * self.longest:
                raise LineError(f"a sentence of {len(more)} pieces, the most is {FAR * self.longest}; break it up")
            if parts and len(parts[-1]) + len(more) <= self.longest:
                parts[-1] += more
            elif more:
                parts.append(more)
        return parts

    def _joined(self, parts: list[tuple[tuple[int, ...], ...]], pieces: int) -> Translation:
        """A line joined from its parts, step by step; a part that needed fewer steps stays as it is."""
        text = " ".join(self.subwords.text(list(steps[-1])) for steps in parts)
        count = max((len(steps) for steps in parts), default=0)
        whole = tuple(
            tuple(piece for steps in parts for piece in self.subwords.cut(steps[min(i, len(steps) - 1)]))
            for i in range(count)
        )
        return Translation(text, whole, pieces)
