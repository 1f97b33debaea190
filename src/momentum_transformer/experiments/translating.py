"""`momentum translate`: lines in, lines out, as they come."""

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import torch

from ..data.folder import DataError
from ..data.parallel_text import read_lines
from ..training.run_directory import RunError
from .configuration import ConfigurationError, nearest
from .runs import load_run, load_task
from .translation import TRANSLATIONS, VOCABULARY, TranslationTask
from .translator import Translation, Translator


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
    """Each line of a file or of standard input as one line; what it took is said on standard error."""
    if batch < 1:
        raise ConfigurationError(f"--batch must be 1 or more, not {batch}")
    task = load_translation_task(path, checkpoint)
    translator = Translator(task, refinements=refinements, until_fixed=until_fixed)
    translator.model.to("cuda" if torch.cuda.is_available() else "cpu")
    name = "standard input" if text is None else str(text)
    first, seconds, source, target = 1, 0.0, 0, 0
    with ExitStack() as stack:
        place: IO[str] = sys.stdout if out is None else stack.enter_context(_open(out))
        for lines in _batches(text, batch):
            started = time.perf_counter()
            translations = translator.lines(lines, first=first, name=name)
            seconds += time.perf_counter() - started
            first += len(lines)
            for translation in translations:
                source += translation.pieces
                target += len(translation.steps[-1]) if translation.steps else 0
                if show_steps:
                    _show(translation, translator, place)
                place.write(f"{translation.text}\n")
            place.flush()
    said = f"{first - 1:,} lines in {seconds:.1f} s"
    if source:
        said += f": {source / seconds:,.0f} source and {target / seconds:,.0f} target tokens/s"
    sys.stderr.write(f"{said}\n")


def load_translation_task(path: Path, checkpoint: str) -> TranslationTask:
    """The task of a run that translates, with its trained weights and its vocabulary."""
    if checkpoint not in ("best", "last"):
        raise nearest("checkpoint", checkpoint, ("best", "last"))
    request, _ = load_run(path)
    known = [experiment.name for experiment in TRANSLATIONS]
    if request.experiment not in known:
        raise RunError(
            f"{path} is a run of {request.experiment}, which does not translate; take a run of {', '.join(known)}"
        )
    task, _, _ = load_task(path, checkpoint)
    assert isinstance(task, TranslationTask)
    if not (path / VOCABULARY).is_file():
        raise RunError(f"{path} cannot translate: it has no {VOCABULARY}; train it again")
    try:
        task.subwords  # noqa: B018 (read here, where what is wrong with it can be said)
    except DataError as error:
        raise RunError(str(error)) from None
    return task


def _batches(text: Path | None, size: int) -> Iterator[list[str]]:
    """Lines of a file, or of standard input while it lasts: one at a time where a person types them."""
    if text is not None:
        lines = read_lines(text)
        yield from (lines[i : i + size] for i in range(0, len(lines), size))
        return
    size = 1 if sys.stdin.isatty() else size
    waiting: list[str] = []
    for number, raw in enumerate(sys.stdin.buffer, start=1):
        try:
            waiting.append(raw.decode().rstrip("\r\n"))
        except UnicodeDecodeError as error:
            raise DataError(f"standard input, line {number}: not UTF-8 ({error.reason})") from None
        if len(waiting) == size:
            yield waiting
            waiting = []
    if waiting:
        yield waiting


def _show(translation: Translation, translator: Translator, place: IO[str]) -> None:
    """The way there: the draft is number 0."""
    for number, step in enumerate(translation.steps):
        place.write(f"  {number}: {translator.subwords.text(list(step))}\n")


def _open(out: Path) -> IO[str]:
    try:
        return out.open("w", encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"--out {out} cannot be written: {error.strerror}") from None
