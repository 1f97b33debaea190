"""`momentum translate`: lines in, lines out, as they come."""

import os
import sys
import time
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import IO

import torch

from ..experiments.configuration import ConfigurationError
from ..experiments.trained_tasks import load_translation_task
from ..experiments.translation.text_translator import LineError, Translation, Translator
from .lines import line_batches, name_of, open_output


def translate_text(
    path: Path,
    *,
    text: Path | None,
    out: Path | None,
    refinements: int | None,
    until_fixed: bool,
    show_steps: bool,
    batch: int,
    checkpoint: str,
) -> None:
    """Translate a file or standard input line by line; standard error gets the time that it took."""
    if batch < 1:
        raise ConfigurationError(f"--batch must be 1 or more, not {batch}")
    if text is not None and out is not None and out.resolve() == text.resolve():
        raise ConfigurationError(f"--out {out} is the text itself; name another file")
    task = load_translation_task(path, checkpoint)
    if task.config.decoder == "autoregressive" and (refinements is not None or until_fixed):
        raise ConfigurationError(f"{path} translates word by word: there is nothing to --refine")
    translator = Translator(task, refinements=refinements, until_fixed=until_fixed)
    translator.model.to("cuda" if torch.cuda.is_available() else "cpu")
    batches = line_batches(text, batch)
    waiting = next(batches, [])  # what is wrong with the text is said before anything is written
    work = _Work(translator, name_of(text), show_steps)
    with ExitStack() as stack:
        place: IO[str] = sys.stdout if out is None else stack.enter_context(open_output(out))
        try:
            for lines in chain([waiting], batches):
                work.translate(lines, place)
        except BrokenPipeError:  # whoever reads has had enough
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (for the flush at exit)
    sys.stderr.write(f"{work}\n")


class _Work:
    """Translates batches of lines, and counts."""

    def __init__(self, translator: Translator, name: str, show_steps: bool) -> None:
        self.translator, self.name, self.show_steps = translator, name, show_steps
        self.done, self.seconds, self.source, self.target = 0, 0.0, 0, 0

    def translate(self, lines: list[str], place: IO[str]) -> None:
        """Write a translation for each line; where one has none, those before it come before the error."""
        started = time.perf_counter()
        try:
            translations = self.translator.lines(lines, first=self.done + 1, name=self.name)
        except LineError:
            if len(lines) == 1:
                raise
            for line in lines:
                self.translate([line], place)
            return
        self.seconds += time.perf_counter() - started
        self.done += len(lines)
        for translation in translations:
            self.source += translation.pieces
            self.target += len(translation.steps[-1]) if translation.steps else 0
            if self.show_steps:
                _show(translation, self.translator, place)
            place.write(f"{translation.text}\n")
        place.flush()

    def __str__(self) -> str:
        said = f"{self.done:,} line{'s' * (self.done != 1)} in {self.seconds:.1f} s"
        if not self.source:
            return said
        rates = self.source / self.seconds, self.target / self.seconds
        return f"{said}: {rates[0]:,.0f} source and {rates[1]:,.0f} target tokens/s"


def _show(translation: Translation, translator: Translator, place: IO[str]) -> None:
    """Print every step of a translation; the draft is number 0."""
    for number, step in enumerate(translation.steps):
        place.write(f"  {number}: {translator.subwords.text(list(step))}\n")
