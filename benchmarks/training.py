"""Where a training step of the copy task at paper scale goes: what the loop adds, and what attention takes.

    python -m benchmarks.training --out results/training.json

One run of the real loop, with a clock around the bare parts of a step (batch, forward, backward, clipping, optimizer)
and around the attention kernels. What the loop adds is the rest of the same step: both are measured together, so that
a busy machine slows both and their ratio stays.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from benchmarks.record import machine, save
from momentum_transformer.backend.choose import active_backend
from momentum_transformer.backend.cpu import causal_operator as causal
from momentum_transformer.experiments.copy import CopyTask
from momentum_transformer.experiments.runs import Request
from momentum_transformer.training import loop, optimizers
from momentum_transformer.training.allocator import keep_freed_memory
from momentum_transformer.training.distributed import World
from momentum_transformer.training.run_directory import RunDirectory


class Clock:
    """Seconds per step, by what they were spent in; a step begins where its batch is asked for."""

    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []
        self.begun: list[float] = []

    def begin(self) -> None:
        self.begun.append(time.perf_counter())
        self.steps.append({"bare": 0.0, "attention": 0.0})

    def around(self, kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **options: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*arguments, **options)
            finally:
                if self.steps:
                    self.steps[-1][kind] += time.perf_counter() - start

        return timed


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
        patch.object(causal, "run", clock.around("attention", causal.run)),
    ):
        world = World(0, 1, torch.device("cpu"))
        run = RunDirectory(Path(scratch))
        loop.train(task, config.train, run=run, world=world, seed=0, resume=False, title="benchmark")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the figures there as JSON")
    parser.add_argument("--model", default="momentum")
    parser.add_argument("--steps", type=int, default=30)
    arguments = parser.parse_args()
    settings = (f"train.steps={arguments.steps}", "train.evaluate_every=100000", "data.validation_batches=1")
    config = Request("copy", arguments.model, "paper", 0, settings).config
    keep_freed_memory()  # as `momentum train` does
    clock = Clock()
    run_loop(config, clock)
    whole = [b - a for a, b in zip(clock.begun, clock.begun[1:], strict=False)][2:]  # the first ones warm up
    parts = clock.steps[2:-1]
    result = {
        "command": "python -m benchmarks.training",
        "machine": machine(),
        "backend": active_backend(),
        "step_seconds": round(statistics.median(whole), 4),
        "loop_overhead": round(statistics.median(w / p["bare"] - 1 for w, p in zip(whole, parts, strict=True)), 5),
        "attention_share": round(statistics.median(p["attention"] / w for w, p in zip(whole, parts, strict=True)), 4),
        "meaning": f"medians over {len(whole)} steps; copy task, {arguments.model}, paper scale, 64 x 128 tokens; "
        "overhead = step / (batch + forward + backward + clipping + optimizer) - 1 within the same step; "
        "attention = the native kernels, forward and backward",
    }
    for name in ("step_seconds", "loop_overhead", "attention_share"):
        print(f"{name}: {result[name]}")
    save(result, arguments.out)


if __name__ == "__main__":
    main()
