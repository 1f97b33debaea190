"""Interleaved timing: every round calls everyone once, so that a busy minute hurts all alike."""

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from ..backend.products import product
from ..ops.shapes import Tensor
from ..training.allocator import give_back
from .contestants import OURS, Attend, Contestant, adapted, inputs
from .measured_shapes import Shape
from .members import EXTRAS

Clock = Callable[[], float]
# What one thread's work takes, whoever else is on the machine. It counts all threads of the process: a long native
# call has a thread of its own (backend/cpu/native_call.py), which `time.thread_time` would miss.
processor_seconds: Clock = time.process_time
Direction = Literal["forward", "forward+backward"]
DIRECTIONS: tuple[Direction, ...] = ("forward", "forward+backward")
GEMM = 1024
SHORT = 1e-3  # a call that takes fewer seconds is timed in rows that take about this long
PILOT = 2048  # longer sequences are tried at an eighth and a quarter of their length first


@dataclass(frozen=True)
class Budget:
    """How long to measure one contestant at one shape in one direction."""

    seconds: float = 4.0
    least: int = 2
    most: int = 200
    call: float = 20.0  # a call that takes longer is not made

    def rounds(self, seconds: float) -> int:
        """How many calls of this duration to time."""
        return max(self.least, min(self.most, int(self.seconds / max(seconds, 1e-9))))


def time_shape(
    shape: Shape,
    direction: Direction,
    contestants: Mapping[Contestant, Attend],
    budget: Budget,
    *,
    clock: Clock = time.perf_counter,
) -> dict[str, Any]:
    """Best and median seconds of everyone at one shape, and the rate of a matrix product in the same rounds."""
    give_back()
    calls: dict[str, Callable[[], object]] = {}
    skipped: dict[str, str] = {}
    tensors: dict[str, tuple[Tensor, ...]] = {}
    for contestant, attend in contestants.items():
        reason = _too_much(shape, direction, contestant, attend, budget)
        if reason:
            skipped[contestant.name] = reason
            continue
        kind = contestant.computes if contestant.computes in EXTRAS else "linear"  # who takes the same shares them
        if kind not in tensors:
            tensors[kind] = inputs(shape, computes=kind)
        calls[contestant.name] = prepare(attend, adapted(contestant, tensors[kind]), direction)
    calls |= _machine(shape)
    rounds, rows = {}, {}
    for name, call in calls.items():  # the first call warms up, and says how many more there is time for
        try:
            took = once(call)
            rounds[name], rows[name] = budget.rounds(took), _row(call, took)
        except (RuntimeError, ValueError, AssertionError) as failure:
            skipped[name] = f"failed: {failure}".splitlines()[0]
    seconds = interleave({name: calls[name] for name in rounds}, rounds, clock, rows)
    found = []
    for contestant in contestants:
        name = contestant.name
        row: dict[str, Any] = {"name": name, "computes": contestant.computes}
        if name in skipped:
            row["skipped"] = skipped[name]
        else:
            times = list(seconds[name].values())
            row |= {"best": min(times), "median": statistics.median(times), "rounds": len(times)}
        found.append(row)
    return {
        "shape": list(shape),
        "direction": direction,
        "gemm_flops": 2 * GEMM**3 / min(seconds["gemm"].values()),
        "triad_bytes": 3 * moved_by_triad(shape) / min(seconds["triad"].values()),
        "rows": found,
        "momentum_to_linear": {
            backend: paired_ratio(seconds[f"{backend} momentum"], seconds[f"{backend} linear"])
            for backend in OURS
            if f"{backend} momentum" in seconds and f"{backend} linear" in seconds
        },
    }


def _machine(shape: Shape) -> dict[str, Callable[[], object]]:
    """What the machine can do: a matrix product, and c = a + b on tensors of the shape."""
    a, b = torch.randn(GEMM, GEMM), torch.randn(GEMM, GEMM)
    left, right, total = (torch.randn(moved_by_triad(shape) // 4) for _ in range(3))
    return {"gemm": lambda: product(a, b), "triad": lambda: torch.add(left, right, out=total)}


def moved_by_triad(shape: Shape) -> int:
    """Bytes of one tensor: a row for each token, or of a single token the state."""
    return shape._replace(n=shape.d).bytes() if shape.n == 1 else shape.bytes()


def prepare(attend: Attend, tensors: Sequence[Tensor], direction: Direction) -> Callable[[], object]:
    """One call with these q, k, v, what a member takes besides, and gradient of y."""
    *leaves, grad = tensors

    def forward() -> object:
        with torch.no_grad():
            return attend(*leaves)

    def forward_backward() -> Sequence[Tensor]:
        return torch.autograd.grad(attend(*leaves), leaves, grad)

    return forward if direction == "forward" else forward_backward


def _row(call: Callable[[], object], took: float) -> int:
    """How many calls are timed together: a short one meets warm caches and no clock, as in a decoder."""
    return max(1, int(SHORT / once(call))) if took < 0.1 else 1  # the first call may have been slow to start


def interleave(
    calls: Mapping[str, Callable[[], object]],
    rounds: Mapping[str, int],
    clock: Clock = time.perf_counter,
    rows: Mapping[str, int] | None = None,
) -> dict[str, dict[int, float]]:
    """Seconds of every call by round, the mean of a row of calls where `rows` asks for more than one.

    Calls with fewer rounds take part in some of them, evenly spread.
    """
    total = max(rounds.values())
    seconds: dict[str, dict[int, float]] = {name: {} for name in calls}
    names, enough = list(calls), available_memory() / 2
    for i in range(total):
        first = i % len(names)  # rotate the order, so that no contestant always follows the same one
        for name in names[first:] + names[:first]:
            share = rounds[name]
            if (i + 1) * share // total > i * share // total:
                seconds[name][i] = once(calls[name], clock, 1 if rows is None else rows[name])
                if available_memory() < enough:  # what contestants leave behind in pieces adds up
                    give_back()
    return seconds


def paired_ratio(above: Mapping[int, float], below: Mapping[int, float]) -> float:
    """The median ratio over the rounds in which both took part."""
    return statistics.median(above[i] / below[i] for i in above.keys() & below.keys())


def growth(short: float, twice: float) -> float:
    """The power of n by which time grows, from a length and its double; between linear and quadratic."""
    return min(2.0, max(1.0, math.log2(twice / short)))


def available_memory() -> float:
    """Bytes that can still be had; without limit where the system does not say."""
    info = Path("/proc/meminfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")), math.inf)


def once(call: Callable[[], object], clock: Clock = time.perf_counter, times: int = 1) -> float:
    """Seconds of one call, as the mean of `times` calls in a row."""
    start = clock()
    for _ in range(times):
        call()
    return (clock() - start) / times


def _too_much(shape: Shape, direction: Direction, contestant: Contestant, attend: Attend, budget: Budget) -> str:
    """Why a call is skipped; empty where it is made."""
    needed = (12 + contestant.states * shape.d) * shape.bytes()
    if needed > 0.8 * available_memory():
        return f"≈ {needed / 1e9:.0f} GB"
    if shape.n <= PILOT:
        return ""
    eighth, quarter = (
        prepare(attend, adapted(contestant, inputs(part, computes=contestant.computes)), direction)
        for part in (shape._replace(n=shape.n // 8), shape._replace(n=shape.n // 4))
    )
    once(eighth)
    short = once(eighth)
    if 8 * short > budget.call:
        return f"> {8 * short:.0f} s"
    twice = once(quarter)
    estimate = twice * 4 ** growth(short, twice)
    return f"≈ {estimate:.0f} s" if estimate > budget.call else ""
