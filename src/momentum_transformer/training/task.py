"""What the loop needs to know of a task, and nothing more."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn


@dataclass(frozen=True)
class Score:
    """Sums over the scored items of a batch, so that any split of a batch adds up to the same mean."""

    loss: Tensor
    count: Tensor
    sums: dict[str, Tensor]  # further metrics, each divided by `count` in the end; see `Condenses` for tables of them
    counts: dict[str, Tensor] = field(default_factory=dict)  # of metrics that are divided by a count of their own


def part_of(length: int, index: int, count: int) -> slice:
    """Where part `index` of `count` of a sequence is; parts differ by one token at most."""
    return slice(length * index // count, length * (index + 1) // count)


class Task(Protocol):
    """A model, its data as a pure function of the step, and how it is scored.

    Shard i of k is every k-th row of the global batch: processes and gradient accumulation split it this way, and
    the result is that of the whole batch.
    """

    @property
    def model(self) -> nn.Module: ...

    def prepare(self) -> dict[str, Any]:
        """Load the data, or say what is missing, before anything is written; where it came from, for provenance."""
        ...

    def batch(self, step: int, shard: int, shards: int) -> Any: ...

    def count(self, batch: Any) -> Tensor: ...

    def score(self, model: nn.Module, batch: Any) -> Score: ...

    def validation(self, step: int, shard: int, shards: int) -> Iterator[Any]: ...

    def tokens_per_step(self) -> int: ...


@runtime_checkable
class HasTest(Protocol):
    """A task whose data has a test split. It chooses nothing: the best checkpoint is scored on it, once."""

    def test(self, shard: int, shards: int) -> Iterator[Any]: ...


@runtime_checkable
class WritesSamples(Protocol):
    """A task whose model writes something to read, as it is now; it goes to samples.jsonl at each evaluation."""

    def sample(self) -> str: ...


@runtime_checkable
class HasParts(Protocol):
    """A task whose sequences can be split over processes."""

    def part(self, batch: Any, index: int, count: int) -> Any:
        """Part `index` of `count` of every sequence of a batch; the scores of all parts add up."""
        ...


@runtime_checkable
class Condenses(Protocol):
    """A task with metrics that are no means, but are made of means, which may then be tables of any shape."""

    def condense(self, means: dict[str, Tensor]) -> dict[str, Tensor]:
        """Turn metrics that are tables, such as a confusion matrix, into single numbers."""
        ...


@runtime_checkable
class KnowsItsRun(Protocol):
    """A task that keeps more in its run directory than weights, such as a vocabulary."""

    def at(self, run: Path) -> None:
        """Receive the place of the run directory, before anything else is called."""
        ...

    def keep(self) -> None:
        """Called once, when the directory has been made."""
        ...
