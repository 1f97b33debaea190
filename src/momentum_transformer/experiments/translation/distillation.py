"""Distillation: a student learns from its teacher's translations of the training text (Kim and Rush, 2016)."""

import hashlib
from pathlib import Path

import numpy as np
from rich.console import Console

from ...data.array_cache import cached
from ...data.parallel_text import ParallelText
from ...training.run_directory import RunDirectory, RunError
from .text_translator import Translator


def teacher_run(teacher: str, run: Path | None) -> Path:
    """A trained run by its directory, or by its model: the run beside ours with the same settings but this one."""
    place = Path(teacher)
    if not (place / "config.json").exists() and run is not None and len(run.parents) > 1:
        name = ",".join(part for part in run.name.split(",") if not part.startswith("data.teacher="))
        place = run.parents[1] / teacher / name
    found = RunDirectory(place)
    if not (found.path / "config.json").exists() or not found.finished() or not found.best.exists():
        raise RunError(
            f"there is no trained run {place} to learn from; train it first, or name one: --set data.teacher=DIR"
        )
    return place


def distilled(teacher: Path, text: ParallelText) -> ParallelText:
    """The text with the teacher's translations as targets, which are made once for a checkpoint."""
    weights = hashlib.sha256(RunDirectory(teacher).best.read_bytes()).hexdigest()
    sources = hashlib.sha256("\n".join(text.sources).encode()).hexdigest()

    def build() -> dict[str, np.ndarray]:
        from ..trained_tasks import load_translation_task  # it knows every experiment, this one too

        task = load_translation_task(teacher, "best")
        Console().print(f"{teacher} translates {len(text):,} lines to learn from", highlight=False, soft_wrap=True)
        translator = Translator(task)
        translations = translator.pieces(translator.subwords.encode_sources(text.sources))
        lines = [translator.subwords.text(steps[-1]) for steps in translations]
        # a translation that came out empty teaches nothing: the reference stays
        lines = [line or reference for line, reference in zip(lines, text.targets, strict=True)]
        return {"targets": np.frombuffer("\n".join(lines).encode(), dtype=np.uint8)}

    targets = cached("distilled", {"weights": weights, "sources": sources}, build)["targets"]
    return ParallelText(text.sources, targets.tobytes().decode().split("\n"))
