"""Is this version as fast as an older one? Two checkouts, each in a process of its own, take turns on one thread.

    python -m momentum_transformer.bench.older_version ../older-checkout --out results/versions.json
    python -m momentum_transformer.bench.older_version ../older-checkout --what steps --out results/steps.json

The first times attention, the second whole training steps of ListOps at scale paper and of Multi30k at scale small.
Both versions have their native kernels compiled (`make setup` does it). A time is the processor's, the best of many:
whoever else is on the machine spoils neither side.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

SHAPES = ((10, 8, 784, 32), (4, 8, 1024, 64), (64, 8, 128, 32), (1, 8, 256, 32), (2, 4, 64, 16))
STEPS = (("lra-listops", "paper"), ("multi30k", "small"))
MODELS = ("linear", "momentum")
GEMM = 1024  # rows and columns of the matrix product beside the steps
REPEATS = {"attention": 7, "steps": 1}  # calls in a turn
SHORT_TURNS = 20  # times as many turns for calls below 2 ms, which a moment of noise spoils whole


def attention() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Calls by name; uses only names that every version has."""
    package = import_module("momentum_transformer")
    linear_attention, momentum_attention = package.linear_attention, package.momentum_attention

    def momentum(*tensors: torch.Tensor, **options: Any) -> Any:
        return momentum_attention(*tensors, beta=0.6, **options)

    for shape in SHAPES:
        leaves = [torch.randn(shape, requires_grad=True) for _ in range(3)]
        for name, attention in (("linear", linear_attention), ("momentum", momentum)):
            for backend in ("auto", "chunked"):

                def forward(attention: Any = attention, leaves: Any = leaves, backend: str = backend) -> None:
                    with torch.no_grad():
                        attention(*leaves, backend=backend)

                def both(attention: Any = attention, leaves: Any = leaves, backend: str = backend) -> None:
                    torch.autograd.grad(attention(*leaves, backend=backend).sum(), leaves)

                yield f"{name} {backend} {shape} forward", forward
                yield f"{name} {backend} {shape} forward + backward", both
    token = [torch.randn(1, 8, 1, 32) for _ in range(3)]
    _, state = momentum(*token, return_state=True)
    yield "momentum, one token", lambda: momentum(*token, state=state, return_state=True)
    few = [torch.randn(2, 8, 20, 16) for _ in range(3)]
    yield "momentum, 20 tokens without causal order", lambda: momentum(*few, causal=False)


def steps() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Training steps by name, always on the same batch; tasks are made when they are first called."""
    a, b = torch.randn(2, GEMM, GEMM)
    yield "matrix product", lambda: a @ b
    for experiment, scale in STEPS:
        for model in MODELS:
            yield f"{experiment} {scale} {model}", partial(_take_step, experiment, model, scale)


def _take_step(experiment: str, model: str, scale: str) -> None:
    from momentum_transformer.training.optimizers import clip_gradients

    task, optimizer, batch = _ready(experiment, model, scale)
    torch.manual_seed(0)
    optimizer.zero_grad(set_to_none=True)
    (task.score(task.model, batch).loss / task.count(batch)).backward()
    clip_gradients(task.model.parameters(), task.config.train)
    optimizer.step()


@cache
def _ready(experiment: str, model: str, scale: str) -> tuple[Any, Any, Any]:
    """A task, its optimizer, and its batch at step 3."""
    from momentum_transformer.data.folder import data_root
    from momentum_transformer.experiments import EXPERIMENTS
    from momentum_transformer.experiments.runs import Request
    from momentum_transformer.training.optimizers import make_optimizer

    few = ("data.train=2000", "data.validation=1", "data.test=1") if experiment == "lra-listops" else ()
    config = Request(experiment, model, scale, 0, few).config
    task: Any = EXPERIMENTS[experiment].task(config, 0, data_root(None))
    return task, make_optimizer(task.model.parameters(), config.train), task.batch(3, 0, 1)


CASES = {"attention": attention, "steps": steps}


def work(what: str) -> None:
    """Time the case whose number comes in, and say how many milliseconds the best call took."""
    torch.set_num_threads(1)
    if what == "steps":
        from momentum_transformer.training.allocator import keep_freed_memory

        keep_freed_memory()  # as `momentum train` does
    known = [call for _, call in CASES[what]()]
    print("ready", flush=True)
    for line in sys.stdin:
        call = known[int(line)]
        call()
        best = min(_timed(call) for _ in range(REPEATS[what]))
        print(1000 * best, flush=True)


def _timed(call: Callable[[], Any]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def products(call: Callable[[], Any]) -> int:
    """Floating-point operations of the matrix products in a call; those inside the native kernels are not counted."""
    with FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops()


class Worker:
    """A process that imports the package from one checkout."""

    def __init__(self, checkout: Path, what: str = "attention") -> None:
        script = f"import runpy; runpy.run_path({__file__!r})['work']({what!r})"  # this file, with their package
        self.process = subprocess.Popen(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONPATH": str(checkout / "src")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if self._read().strip() != "ready":
            raise SystemExit(f"{checkout} has no package that runs")

    def _read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def close(self) -> None:
        self.process.communicate()  # the other process ends when its input ends

    def time(self, case: int) -> float:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{case}\n")
        self.process.stdin.flush()
        return float(self._read())


def commit(checkout: Path) -> str:
    words = ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"]
    return subprocess.run(words, capture_output=True, text=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("older", type=Path)
    parser.add_argument("--what", choices=tuple(CASES), default="attention")
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    from momentum_transformer.bench.record import machine, save

    here = Path(__file__).parents[3]
    older, newer = (Worker(checkout, options.what) for checkout in (options.older, here))
    rows: list[dict[str, Any]] = []
    for number, (name, call) in enumerate(CASES[options.what]()):
        times = [(older.time(number), newer.time(number))]
        turns = options.turns * (SHORT_TURNS if times[0][0] < 2 else 1)
        times += [(older.time(number), newer.time(number)) for _ in range(turns)]
        old, new = (min(column) for column in zip(*times, strict=True))
        row = {"case": name, "older_ms": old, "newer_ms": new, "ratio": new / old}
        rows.append(row | ({"product_operations": products(call)} if options.what == "steps" else {}))
        print(f"{name:60} {old:9.3f} {new:9.3f} ms   x {new / old:.3f}", flush=True)
    older.close()
    newer.close()
    module = "momentum_transformer.bench.older_version"
    command = f"python -m {module} ../older-checkout --what {options.what} --turns {options.turns}"
    versions = {"older": commit(options.older), "newer": commit(here)}
    save({"command": command, "machine": machine()} | versions | {"threads": 1, "rows": rows}, options.out)


if __name__ == "__main__":
    main()
