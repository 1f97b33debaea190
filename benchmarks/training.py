"""What the training loop adds to the bare forward + backward + optimizer step of the copy task at paper scale.

python -m benchmarks.training --out results/training.json
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.attention import machine
from momentum_transformer.experiments.copy import CopyTask
from momentum_transformer.experiments.runs import Request
from momentum_transformer.training.distributed import World
from momentum_transformer.training.loop import train
from momentum_transformer.training.optimizers import clip_gradients, make_optimizer
from momentum_transformer.training.run_directory import RunDirectory


class Timed(CopyTask):
    """Notes when each batch is asked for: the time from one to the next is a whole step of the loop."""

    def __init__(self, config: Any, seed: int) -> None:
        super().__init__(config, seed)
        self.asked: list[float] = []

    def batch(self, step: int, shard: int, shards: int) -> Any:
        self.asked.append(time.perf_counter())
        return super().batch(step, shard, shards)


def loop_steps(config: Any) -> list[float]:
    task = Timed(config, 0)
    with tempfile.TemporaryDirectory() as scratch:
        run = RunDirectory(Path(scratch))
        world = World(0, 1, torch.device("cpu"))
        train(task, config.train, run=run, world=world, seed=0, resume=False, title="benchmark")
    return [b - a for a, b in zip(task.asked, task.asked[1:], strict=False)]


def bare_steps(config: Any, steps: int) -> list[float]:
    """The same, written out, with nothing else."""
    task = CopyTask(config, 0)
    optimizer = make_optimizer(task.model.parameters(), config.train)
    seconds = []
    for step in range(steps):
        start = time.perf_counter()
        batch = task.batch(step, 0, 1)
        loss = task.score(task.model, batch).loss / task.count(batch)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        clip_gradients(task.model.parameters(), config.train)
        optimizer.step()
        seconds.append(time.perf_counter() - start)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the figures there as JSON")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    steps = 6
    settings = (f"train.steps={steps}", "train.evaluate_every=1000", "data.validation_batches=1")
    config = Request("copy", "momentum", "paper", 0, settings).config
    loop, bare = [], []
    for _ in range(arguments.rounds):  # interleaved, so that a busy minute hurts both alike
        loop += loop_steps(config)[1:]
        bare += bare_steps(config, steps)[1:]
    result = {
        "command": "python -m benchmarks.training",
        "machine": machine(),
        "loop_step_seconds": round(statistics.median(loop), 4),
        "bare_step_seconds": round(statistics.median(bare), 4),
        "overhead": round(statistics.median(loop) / statistics.median(bare) - 1, 4),
        "meaning": "median of all steps, interleaved; copy task, momentum, paper scale, batch 64 x 128 tokens",
    }
    for name in ("loop_step_seconds", "bare_step_seconds", "overhead"):
        print(f"{name}: {result[name]}")
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
