"""What an experiment is: data, model, loss and the paper's numbers, at three scales."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..training.task import Task

SCALES = ("tiny", "small", "paper")


@dataclass(frozen=True)
class Experiment:
    name: str
    title: str
    models: tuple[str, ...]
    minutes: dict[str, str]  # scale → what one model takes on two CPU cores
    config: Callable[[str, str], Any]  # (model, scale) → configuration
    task: Callable[[Any, int], Task]  # (configuration, seed) → task


@dataclass(frozen=True)
class Variant:
    """One line of a study: a model, with settings changed."""

    model: str
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Study:
    """What `momentum reproduce` runs: variants of one experiment, each with several seeds."""

    name: str
    title: str
    experiment: str
    variants: tuple[Variant, ...]
