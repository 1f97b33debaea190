"""Where a training step of the copy task at paper scale goes: what the loop adds, and what attention takes.

    python -m momentum_transformer.bench.training_step --out results/training.json

One run of the real loop for each model, with a clock around the bare parts of a step (batch, forward, backward,
clipping, optimizer) and around attention, forward and backward, whichever backend serves it. What the loop adds is the
rest of the same step: both are measured together, so that a busy machine slows both and their ratio stays.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from ..backend.choose import active_backend
from ..experiments.copy import CopyTask
from ..experiments.runs import Request
from ..layers import family_mixers, paper_mixers
from ..training import loop, optimizers
from ..training.allocator import keep_freed_memory
from ..training.distributed import World
from ..training.run_directory import RunDirectory
from .record import machine, save
from .timing import processor_seconds

MODELS = ("momentum", "gated-delta", "momentum-delta")
DOORS = (
    (paper_mixers, "linear_attention"),
    (paper_mixers, "momentum_attention"),
    (family_mixers, "recurrent_attention"),
)


class Clock:
    """Seconds per step, by what they were spent in; a step begins where its batch is asked for.

    With one thread they are those of the processor, which a busy machine does not stretch.
    """

    def __init__(self) -> None:
        self.now = processor_seconds if torch.get_num_threads() == 1 else time.perf_counter
        self.steps: list[dict[str, float]] = []
        self.begun: list[float] = []

    def begin(self) -> None:
        self.begun.append(self.now())
        self.steps.append({"bare": 0.0, "attention": 0.0})

    def around(self, kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **options: Any) -> Any:
            start = self.now()
            try:
                return function(*arguments, **options)
            finally:
                if self.steps:
                    self.steps[-1][kind] += self.now() - start

        return timed

    def around_attention(self, door: Callable[..., Any]) -> Callable[..., Any]:
        """The clock also runs from where the backward pass reaches y to where it has the gradients of all inputs."""

        def forward(*arguments: Any, **options: Any) -> Any:
            given = {id(x): x for x in (*arguments, *options.values()) if isinstance(x, torch.Tensor)}
            marked = dict(zip(given, Mark.apply(self.stop, *given.values()), strict=True))
            y = door(
                *(marked.get(id(x), x) for x in arguments),
                **{name: marked.get(id(x), x) for name, x in options.items()},
            )
            return Mark.apply(self.start, y)[0]

        return self.around("attention", forward)

    def start(self) -> None:
        self.since = self.now()

    def stop(self) -> None:
        self.steps[-1]["attention"] += self.now() - self.since


class Mark(torch.autograd.Function):
    """The identity, which says when the backward pass has the gradients of all it was given."""

    @staticmethod
    def forward(ctx: Any, reached: Callable[[], None], *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.reached = reached
        return tuple(x.view_as(x) for x in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        ctx.reached()
        return None, *gradients


def run_loop(config: Any, clock: Clock) -> None:
    task = CopyTask(config, 0)
    make_batch, make_optimizer = clock.around("bare", task.batch), optimizers.make_optimizer

    def batch(step: int, shard: int, shards: int) -> Any:
        clock.begin()
        return make_batch(step, shard, shards)

    def optimizer(*arguments: Any) -> torch.optim.Optimizer:
        made = make_optimizer(*arguments)
        made.step = clock.around("bare", made.step)  # type: ignore[method-assign]
        made.zero_grad = clock.around("bare", made.zero_grad)  # type: ignore[method-assign]
        return made

    task.batch, task.score = batch, clock.around("bare", task.score)  # type: ignore[method-assign]
    with (
        tempfile.TemporaryDirectory() as scratch,
        patch.object(loop, "make_optimizer", optimizer),
        patch.object(loop, "clip_gradients", clock.around("bare", optimizers.clip_gradients)),
        patch.object(torch.Tensor, "backward", clock.around("bare", torch.Tensor.backward)),
        ExitStack() as doors,
    ):
        for module, name in DOORS:
            doors.enter_context(patch.object(module, name, clock.around_attention(getattr(module, name))))
        world = World(0, 1, torch.device("cpu"))
        run = RunDirectory(Path(scratch))
        loop.train(task, config.train, run=run, world=world, seed=0, title="benchmark")


def measure(model: str, steps: int) -> dict[str, Any]:
    """Medians over the steps, but for the first two, which warm up."""
    settings = (f"train.steps={steps}", "train.evaluate_every=100000", "data.validation_batches=1")
    clock = Clock()
    run_loop(Request("copy", model, "paper", 0, settings).config, clock)
    whole = [b - a for a, b in pairwise(clock.begun)][2:]
    parts = clock.steps[2:-1]

    def median(figure: Callable[[float, dict[str, float]], float], digits: int) -> float:
        return round(statistics.median(figure(w, p) for w, p in zip(whole, parts, strict=True)), digits)

    return {
        "model": model,
        "steps": len(whole),
        "step_seconds": median(lambda w, p: w, 4),
        "loop_overhead": median(lambda w, p: w / p["bare"] - 1, 5),
        "attention_share": median(lambda w, p: p["attention"] / w, 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the figures there as JSON")
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--steps", type=int, default=30)
    arguments = parser.parse_args()
    keep_freed_memory()  # as `momentum train` does
    rows = []
    for model in arguments.models:
        rows.append(measure(model, arguments.steps))
        print(rows[-1], flush=True)
    result = {
        "command": " ".join(["python -m momentum_transformer.bench.training_step", *sys.argv[1:]]),
        "machine": machine(),
        "backend": active_backend(),
        "meaning": "medians over steps of the copy task at paper scale, 64 x 128 tokens; "
        "overhead = step / (batch + forward + backward + clipping + optimizer) - 1 within the same step; "
        "attention = q, k, v and coefficients to y, and back to their gradients",
        "rows": rows,
    }
    save(result, arguments.out)


if __name__ == "__main__":
    main()
