"""Is attention as fast as in an older version? Two checkouts, each in a process of its own, take turns on one thread.

    python -m benchmarks.versions ../older-checkout --out results/versions.json

Both have their native kernels compiled (`make setup` does it). A time is the best of many, so that a busy machine
spoils neither side.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.record import machine, save

SHAPES = ((10, 8, 784, 32), (4, 8, 1024, 64), (64, 8, 128, 32), (1, 8, 256, 32), (2, 4, 64, 16))
REPEATS = 7  # calls in a turn
SHORT_TURNS = 20  # times as many turns for calls below 2 ms, which a moment of noise spoils whole


def cases() -> Iterator[tuple[str, Callable[[], Any]]]:
    """What is timed, by name; uses only names that every version has."""
    from momentum_transformer import linear_attention, momentum_attention

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


def work() -> None:
    """Time the case whose number comes in, and say how many milliseconds the best call took."""
    torch.set_num_threads(1)
    known = [call for _, call in cases()]
    print("ready", flush=True)
    for line in sys.stdin:
        call = known[int(line)]
        call()
        best = min(_timed(call) for _ in range(REPEATS))
        print(1000 * best, flush=True)


def _timed(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


class Worker:
    """A process that imports the package from one checkout."""

    def __init__(self, checkout: Path) -> None:
        here = Path(__file__).parents[1]
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from benchmarks.versions import work; work()"],
            env={"PYTHONPATH": f"{checkout / 'src'}:{here}"},
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
        self.process.communicate()  # the end of its input is its end

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
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    here = Path(__file__).parents[1]
    older, newer = Worker(options.older), Worker(here)
    rows = []
    for number, (name, _) in enumerate(cases()):
        times = [(older.time(number), newer.time(number))]
        turns = options.turns * (SHORT_TURNS if times[0][0] < 2 else 1)
        times += [(older.time(number), newer.time(number)) for _ in range(turns)]
        old, new = (min(column) for column in zip(*times, strict=True))
        rows.append({"case": name, "older_ms": old, "newer_ms": new, "ratio": new / old})
        print(f"{name:60} {old:9.3f} {new:9.3f} ms   x {new / old:.3f}", flush=True)
    older.close()
    newer.close()
    record = {"machine": machine(), "older": commit(options.older), "newer": commit(here), "threads": 1, "rows": rows}
    save(record, options.out)


if __name__ == "__main__":
    main()
