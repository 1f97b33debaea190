"""Scores on data that was not trained on, over all processes; an interruption is answered between two batches."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError
from .config import TrainConfig
from .distributed import World
from .interruption import Interruption
from .precision import autocast
from .sharded import whole
from .task import Condenses, HasParts, Task

ENDED: Any = object()  # stands for the batch after the last one


class NoDataError(UserError):
    """Nothing to evaluate on."""


class DroppedError(Exception):
    """An evaluation that an interruption ended, in all processes."""


def part(task: Task, batch: Any, world: World) -> Any:
    """The rows of a batch, or this process's part of each of them."""
    return task.part(batch, world.part, world.context) if isinstance(task, HasParts) and world.context > 1 else batch


def evaluate(
    task: Task, model: nn.Module, config: TrainConfig, world: World, batches: Iterable[Any]
) -> dict[str, float]:
    """Mean loss and metrics over validation or test data, of which each process scores its share."""
    was_training = model.training
    model.eval()
    totals: dict[str, tuple[Tensor, Tensor]] = {}  # metric → its sum and count
    try:
        with torch.no_grad(), autocast(config, world), world.splitting(), whole(model):
            for batch in batches:
                score = task.score(model, part(task, batch, world))
                for name, value in {"loss": score.loss, **score.sums}.items():
                    total, count = totals.get(name, (0.0, 0.0))
                    totals[name] = total + value.double(), count + score.counts.get(name, score.count).double()
    finally:
        model.train(was_training)
    if not totals:
        raise NoDataError("there is no data to evaluate on")
    means = {name: world.sum(total) / world.sum(count) for name, (total, count) in totals.items()}
    condensed = task.condense(means) if isinstance(task, Condenses) else means
    return {name: float(mean) for name, mean in condensed.items()}


def until_interrupted(batches: Iterable[Any], world: World, interrupted: Interruption) -> Iterator[Any]:
    """The batches, until any process is asked to end; those that have fewer of them wait for the others."""
    left = iter(batches)
    while True:
        batch = next(left, ENDED)
        flags = torch.tensor([interrupted.is_set, batch is not ENDED], dtype=torch.float32, device=world.device)
        stop, more = world.sum(flags).tolist()
        if stop:
            raise DroppedError
        if not more:
            return
        if batch is not ENDED:
            yield batch
