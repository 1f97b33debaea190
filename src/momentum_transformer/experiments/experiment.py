"""What an experiment is: data, model, loss and the paper's numbers, at three scales."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ..training.task import Task

SCALES = ("tiny", "small", "paper")


class MakeTask(Protocol):
    def __call__(self, config: Any, seed: int, data_dir: Path | None = None) -> Task: ...


@dataclass(frozen=True)
class Experiment:
    name: str
    title: str
    models: tuple[str, ...]
    minutes: dict[str, str]  # scale → what one model takes on two CPU cores
    config: Callable[[str, str], Any]  # (model, scale) → configuration
    task: MakeTask
    # (trained task, folder): make something to look at; returns lines for metrics.jsonl
    samples: Callable[[Any, Path], Sequence[dict[str, Any]]] | None = None


@dataclass(frozen=True)
class Variant:
    """One line of a study: a model, with settings changed."""

    model: str
    settings: tuple[str, ...] = ()
    waits: bool = False  # it needs what the variants that do not wait have left behind


@dataclass(frozen=True)
class Study:
    """What `momentum reproduce` runs: variants of one or more experiments, each with several seeds."""

    name: str
    title: str
    experiment: str
    variants: tuple[Variant, ...]
    others: tuple[str, ...] = ()  # experiments of which the same variants are run

    @property
    def experiments(self) -> tuple[str, ...]:
        return (self.experiment, *self.others)
