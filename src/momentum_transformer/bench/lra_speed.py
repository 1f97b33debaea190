"""Long Range Arena at the paper's sizes: time and memory of each model against length, and a whole step of ListOps.

    python -m momentum_transformer.bench.lra_speed --out results/lra.json

Every model and length is measured in a process of its own, on full sequences, twice; the faster one counts. The step
of ListOps is that of scale paper, softmax and momentum by turns, on real expressions of 500 to 2,000 tokens.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from ..data.folder import data_root
from ..experiments.classification import Part
from ..experiments.lra.lra_task import LraTask
from ..experiments.named_models import ALL_MODELS
from ..experiments.runs import Request
from ..training.allocator import keep_freed_memory
from ..training.optimizers import make_optimizer
from .record import machine, save

LENGTHS = (1024, 2048, 4096)
FEW = ("data.train=2000", "data.validation=1", "data.test=1")


def check() -> None:
    """A batch in parts of like lengths has the loss of the whole batch, or nothing is timed."""
    losses = []
    for buckets in (1, 4):
        config = Request("lra-listops", "momentum", "tiny", 0, (f"data.buckets={buckets}",)).config
        task = LraTask("lra-listops", config, 0, data_root(None))
        losses.append(task.score(task.model.double(), task.batch(0, 0, 1)).loss.item())
    if abs(losses[0] - losses[1]) > 1e-6 * losses[0]:
        raise SystemExit(f"a batch in parts has loss {losses[1]}, the whole batch {losses[0]}; nothing was timed")


def train_step(task: LraTask, optimizer: torch.optim.Optimizer, batch: list[Part]) -> None:
    optimizer.zero_grad(set_to_none=True)
    (task.score(task.model, batch).loss / task.count(batch)).backward()
    optimizer.step()


def measure(model: str, length: int, batch_size: int, steps: int) -> dict[str, Any]:
    """Seconds per step and peak extra memory of one model, in this process."""
    config = Request("lra-listops", model, "paper", 0, (f"data.length={length}",)).config
    task = LraTask("lra-listops", config, 0)
    optimizer = make_optimizer(task.model.parameters(), config.train)

    def batch(n: int) -> list[Part]:
        return [Part((torch.randint(1, 16, (batch_size, n)), None), torch.randint(0, 10, (batch_size,)))]

    train_step(task, optimizer, batch(64))
    before = _peak()
    seconds = []
    for _ in range(steps):
        start = time.perf_counter()
        train_step(task, optimizer, batch(length))
        seconds.append(time.perf_counter() - start)
    return {
        "model": model,
        "length": length,
        "seconds_per_1000_steps": round(1000 * min(seconds), 1),
        "peak_extra_bytes": _peak() - before,
    }


def _peak() -> int:
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024


def lengths(batch_size: int, steps: int) -> list[dict[str, Any]]:
    """Everyone in turn, and once more: what disturbs a process for a while spoils one of its two turns."""
    best: dict[tuple[int, str], dict[str, Any]] = {}
    for turn in range(2):
        for length in LENGTHS:
            for model in ALL_MODELS:
                words = [sys.executable, "-m", "momentum_transformer.bench.lra_speed", "--one", model, str(length)]
                words += ["--batch", str(batch_size), "--steps", str(steps)]
                run = subprocess.run(words, capture_output=True, text=True, check=True)
                row = json.loads(run.stdout)
                before = best.get((length, model), row)
                best[length, model] = min(row, before, key=lambda found: float(found["seconds_per_1000_steps"]))
                print(
                    f"turn {turn + 1}: {model:>20} n = {length}: {row['seconds_per_1000_steps']:9.1f} s per 1,000 "
                    f"steps, {row['peak_extra_bytes'] / 2**20:7.0f} MB",
                    flush=True,
                )
    return list(best.values())


def listops(rounds: int) -> dict[str, Any]:
    """The whole step of scale paper, and how much of it is making the batch."""
    tasks = {}
    for model in ("softmax", "momentum"):
        config = Request("lra-listops", model, "paper", 0, FEW).config
        task = LraTask("lra-listops", config, 0, data_root(None))
        tasks[model] = (task, make_optimizer(task.model.parameters(), config.train))
    seconds: dict[str, list[float]] = {model: [] for model in tasks}
    waiting = []
    for step in range(rounds + 1):  # the first one warms up
        for model, (task, optimizer) in tasks.items():
            start = time.perf_counter()
            batch = task.batch(step, 0, 1)
            waiting.append(time.perf_counter() - start)
            train_step(task, optimizer, batch)
            seconds[model].append(time.perf_counter() - start)
    medians = {model: statistics.median(times[1:]) for model, times in seconds.items()}
    return {
        "batch": tasks["momentum"][0].config.train.batch_size,
        "seconds_per_step": {model: round(value, 4) for model, value in medians.items()},
        "softmax_over_momentum": round(medians["softmax"] / medians["momentum"], 2),
        "share_of_a_momentum_step_spent_on_its_batch": round(statistics.median(waiting[2:]) / medians["momentum"], 5),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the figures there as JSON")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--one", nargs=2, metavar=("MODEL", "LENGTH"), help="measure this one only, here")
    arguments = parser.parse_args()
    keep_freed_memory()  # as `momentum train` does
    if arguments.one:
        print(json.dumps(measure(arguments.one[0], int(arguments.one[1]), arguments.batch, arguments.steps)))
        return
    check()
    result = {
        "command": "python -m momentum_transformer.bench.lra_speed",
        "machine": machine(),
        "shape": f"2 layers, width 64, 2 heads, batch {arguments.batch}, float32, no masks; forward, backward, AdamW",
        "lengths": lengths(arguments.batch, arguments.steps),
        "listops": listops(3 * arguments.steps),
    }
    print(f"ListOps, scale paper: {result['listops']}")
    if result["listops"]["softmax_over_momentum"] < 3:
        print("bound missed (momentum 3 x as fast as softmax): a busy machine, or a regression")
    save(result, arguments.out)


if __name__ == "__main__":
    main()
