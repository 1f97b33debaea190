"""Sequences of which some positions are scored: what every made task gives a model."""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor


class ScoredSequences(NamedTuple):
    inputs: Tensor  # (b, n) symbols, or (b, n, d) numbers
    targets: Tensor  # (b, n)  what the model must say at each position
    scored: Tensor  # (b, n)  where it is scored
    parts: dict[str, Tensor]  # name → (b, n): scored positions whose mean is reported apart, too
    yardsticks: dict[str, Tensor]  # name → (b, n): what another method says

    def rows(self, first: int, step: int) -> "ScoredSequences":
        """Every `step`-th row from the first one on."""
        return self._map(lambda x: x[first::step])

    def cut(self, tokens: slice) -> "ScoredSequences":
        """The same sequences cut to some of their tokens."""
        return self._map(lambda x: x[:, tokens])

    def _map(self, function: Callable[[Tensor], Tensor]) -> "ScoredSequences":
        inputs, targets, scored = map(function, self[:3])
        parts, yardsticks = ({name: function(x) for name, x in group.items()} for group in self[3:])
        return ScoredSequences(inputs, targets, scored, parts, yardsticks)
