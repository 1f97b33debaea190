"""A trained translator as the page shows it."""

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..errors import one_line
from ..experiments.translation.text_translator import LineError, Translator
from ..experiments.translation.translation_scoring import read_steps
from ..experiments.translation.translation_task import TranslationTask
from ..training.run_directory import RunError
from .messages import MAX_CHARACTERS
from .page_models import Draft, Example, RefusedError


@dataclass(frozen=True)
class TrainedTranslator:
    """A trained translation run; `Translating` says what its parts mean."""

    name: str
    note: str
    task: TranslationTask
    sentences: tuple[Example, ...]

    @property
    def languages(self) -> tuple[str, str]:
        return self.task.subwords.source_language, self.task.subwords.target_language

    @property
    def refinements(self) -> int | None:
        config = self.task.config
        return None if config.decoder == "autoregressive" else config.refine.decoding

    def examples(self) -> Sequence[Example]:
        return self.sentences

    def translate(self, text: str, *, refinements: int, until_fixed: bool) -> Iterator[Draft]:
        translator = Translator(self.task, refinements=refinements, until_fixed=until_fixed)
        steps = translator.steps(text)
        is_empty = True
        while True:
            before = time.perf_counter()
            try:
                step = next(steps, None)
            except LineError as error:
                raise RefusedError(str(error)) from None
            seconds = time.perf_counter() - before
            if step is None:
                break
            is_empty = False
            yield Draft(tuple(step.text.split()), len(step.steps[-1]), seconds)
        if is_empty:
            raise RefusedError("there is nothing to translate")


def warm_up(task: TranslationTask) -> None:
    """Make what is only made at the first call: it is no part of a model's speed."""
    with suppress(LineError):  # a vocabulary of another script
        Translator(task, refinements=1).lines(["a"])


def read_examples(run: Path) -> tuple[tuple[Example, ...], str]:
    """Test sentences with their translations from a finished run; where there are none, why."""
    path = run / "samples" / "steps.jsonl"
    if not path.exists():
        return (), f"{run} has not been trained to its end"
    try:
        found = [Example(line["source"], line["reference"]) for line in read_steps(path)]
    except RunError as error:
        return (), one_line(error)
    return tuple(example for example in found if len(example.source) <= MAX_CHARACTERS), ""
