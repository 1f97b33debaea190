"""Trained runs as tasks of their kind: what draws, translates or writes, ready to be used."""

from pathlib import Path

from ..data.folder import DataError
from ..training.run_directory import RunError
from .pictures.picture_task import PICTURES, PictureTask
from .runs import load_task_of
from .text import TEXT, TextTask
from .translation.translation_task import TRANSLATIONS, VOCABULARY, TranslationTask


def load_picture_task(path: Path, checkpoint: str, data_dir: Path | None) -> PictureTask:
    """The task of a run that draws pictures, with its trained weights."""
    task = load_task_of(PICTURES, path, checkpoint, cannot="draws no pictures", data_dir=data_dir)
    assert isinstance(task, PictureTask)
    return task


def load_translation_task(path: Path, checkpoint: str) -> TranslationTask:
    """The task of a run that translates, with its trained weights and its vocabulary."""
    task = load_task_of(TRANSLATIONS, path, checkpoint, cannot="does not translate")
    assert isinstance(task, TranslationTask)
    if not (path / VOCABULARY).is_file():
        raise RunError(f"{path} cannot translate: it has no {VOCABULARY}; train it again")
    try:
        task.subwords  # noqa: B018 (read here, where what is wrong with it can be said)
    except DataError as error:
        raise RunError(str(error)) from None
    return task


def load_text_task(path: Path, checkpoint: str) -> TextTask:
    """The task of a run that writes, with its trained weights and its vocabulary."""
    task = load_task_of([TEXT], path, checkpoint, cannot="writes no text")
    assert isinstance(task, TextTask)
    return task
