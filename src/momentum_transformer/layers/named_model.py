"""A mixer under a name: what trains it by this name, and how figures draw it."""

from dataclasses import dataclass
from typing import Any, Literal, Protocol

from .situation import Mixer


class MixerSettings(Protocol):
    """A frozen dataclass of plain values, all with defaults: what `--set` can change of a mixer."""

    def make(self, length: int) -> Mixer:
        """The mixer, for sequences of at most `length` tokens."""
        ...


@dataclass(frozen=True)
class NamedModel:
    """A row of the table of models, `experiments/named_models.py`."""

    name: str
    settings: type[MixerSettings]
    colour: str
    dash: Any  # as matplotlib has it
    marker: str
    residual: Literal["plain", "momentum", "adaptive"] = "plain"
    attention: str = ""  # the row whose mixer it has, if not its own
    origin: Literal["paper", "arena", "family"] = "family"  # arena: of the paper's Table 4 alone
