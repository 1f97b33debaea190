"""A mixer under a name: what trains it by this name, and how figures draw it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from .situation import Mixer


@dataclass(frozen=True)
class NamedModel:
    """A row of the table of models, `experiments/named_models.py`."""

    name: str
    mixer: Callable[[Any, int], Mixer]  # of a ModelConfig, for sequences of at most so many tokens
    settings: tuple[str, ...]  # of the configuration, which the mixer reads
    colour: str
    dash: Any  # as matplotlib has it
    marker: str
    residual: Literal["plain", "momentum", "adaptive"] = "plain"
    attention: str = ""  # the row whose mixer it has, if not its own
    origin: Literal["paper", "arena", "family"] = "family"  # arena: of the paper's Table 4 alone
