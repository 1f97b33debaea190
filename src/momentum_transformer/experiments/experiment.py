"""What an experiment is: data, model, loss and the paper's numbers, at up to four scales."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ..training.task import Task
from .configuration import ConfigurationError, nearest

SCALES = ("tiny", "small", "medium", "paper")


def check_scale(experiment: str, scale: str, lacks: Sequence[str] = ()) -> None:
    """Refuse a scale that does not exist, or that this experiment lacks."""
    known = [name for name in SCALES if name not in lacks]
    if scale not in SCALES:
        raise nearest("scale", scale, known)
    if scale in lacks:
        raise ConfigurationError(f"{experiment} has no scale {scale!r} (known: {', '.join(known)})")


class MakeTask(Protocol):
    def __call__(self, config: Any, seed: int, data_dir: Path | None = None) -> Task: ...


@dataclass(frozen=True)
class Experiment:
    name: str
    title: str
    models: tuple[str, ...]
    minutes: dict[str, str]  # scale → what one model takes on two CPU cores; scales that it lacks are left out
    config: Callable[[str, str], Any]  # (model, scale) → configuration
    task: MakeTask
    # (trained task, folder): make something to look at; returns lines for metrics.jsonl
    samples: Callable[[Any, Path], Sequence[dict[str, Any]]] | None = None
    use: str = ""  # the command that uses a trained model, with RUN for its directory


@dataclass(frozen=True)
class Variant:
    """One line of a study: a model, with settings changed."""

    model: str
    settings: tuple[str, ...] = ()
    waits: bool = False  # it starts after the variants that do not wait, whose results it needs
    # factors of the experiment's own learning rate: the first seed is run at each of them, the others at the best one
    rates: tuple[float, ...] = (1.0,)


@dataclass(frozen=True)
class Study:
    """What `momentum reproduce` runs: variants of one or more experiments, each with several seeds."""

    name: str
    title: str
    experiment: str
    variants: tuple[Variant, ...]
    others: tuple[str, ...] = ()  # further experiments, of which the same variants are run
    then: tuple["Study", ...] = ()  # studies that are run after it, as parts of it
    section: str = ""  # of the report, by its name in report/contents.py; without one, its runs are shown side by side

    @property
    def experiments(self) -> tuple[str, ...]:
        """The experiments that its own variants are run on."""
        return (self.experiment, *self.others)

    @property
    def lines(self) -> tuple[tuple[str, Variant], ...]:
        """Every experiment and variant, in order."""
        own = ((experiment, variant) for experiment in self.experiments for variant in self.variants)
        return (*own, *(line for study in self.then for line in study.lines))
