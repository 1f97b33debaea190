"""What bounds the native kernels: their operations on the state, the bytes they move, what a thread more brings.

    python -m momentum_transformer.bench.limits results/limits.json 2

Measured with one thread and with all (here 2) in the same rounds: a matrix product, c = a + b on tensors of the shape,
and the kernels; with all, also fast-transformers where it is installed. Operations at the rate of the matrix product,
and bytes at that of the sum, are the least that a call can take, one after the other where nothing overlaps.
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from ..backend.cpu.causal_operator import sums_segments
from ..backend.cpu.recurrent_operator import segment
from ..backend.products import product
from ..report.tables import Table
from ..training.allocator import keep_freed_memory
from ..training.provenance import provenance
from .contestants import BETA, Computes, UnavailableError, find, inputs, our
from .measured_shapes import TARGETS, BenchError, Shape
from .members import extra_bytes
from .suite import write
from .targets import BACKWARD_TIMES, FORWARD_TIMES, MOMENTUM_RATIO, SHARE, Record
from .timing import DIRECTIONS, GEMM, Budget, interleave, moved_by_triad, once, prepare

PEER = "fast-transformers"
COMPUTES: tuple[Computes, ...] = ("linear", "momentum")


# Multiply-adds of the kernels on an element of the state; recomputing s and m is counted in `operations`.
#
#   forward                                             gated delta   momentum delta   KDA
#   the token is added                                  1             2 (m, s)         1
#   q reads s                                           1             1                1
#   the erase vector of the next token reads s          1             1                1
#   the decay of each channel                           -             -                1
#
#   backward                                            (by chunks)   (by chunks)      (by tokens)
#   q·dy and p·do are added to ds (do: dL/dprediction)  2             2 · 2 (ds, dm)   2
#   k and u read ds, for du and dk                      2             2 · 2            2
#   dy and do read s, for dq and dp                     2             2 · 2            2
#   s once more                                         -             -                1
#   the gradient of the decay                           -             -                1
#   multiplications by the decay of each channel        -             -                2
MEMBER_ADDS = {
    "gated delta": (3, 6),
    "gated delta a head": (3, 6),
    "momentum delta": (4, 2 * 6),
    "KDA": (4, 8 + 2),
    "one token": (3, 0),
}
# In a chunk every token also meets the others: q and p read k, dy and do read u (¾ each: the first half of a chunk
# does not meet the second), du adds up q and p (1¼ together), dq, dp and dk are one each.
CHUNK = 16  # tokens, as in native/family_rows.h
CHUNK_PRODUCTS = 4 * 3 / 4 + 5 / 4 + 3


def operations(shape: Shape, computes: str, direction: str) -> float:
    """Floating-point operations of the kernels on the state: two for each multiply-add, and for what takes its place.

    A token is added to every element of the state, and reads it; momentum also adds m to s. Backward does the same
    three times over, for dq, dk and dv. Long sequences add up s from its value before the segment, once each way.
    """
    if computes in MEMBER_ADDS:
        forward, backward = MEMBER_ADDS[computes]
        per_token: float = (forward if direction == "forward" else forward + backward) * shape.d**2
        if direction != "forward" and computes != "KDA":
            planes = 2 if computes == "momentum delta" else 1
            saved = CHUNK / segment(shape.d, planes)  # of the states before chunks; the others are recomputed
            per_token += (1 - saved) * planes * shape.d**2 + CHUNK_PRODUCTS * CHUNK * shape.d
    else:
        scan = (2 if computes == "linear" else 3) * shape.d**2
        base = shape.d**2 if sums_segments(shape.n) else 0
        per_token = scan + base if direction == "forward" else 4 * scan + 2 * base
    return shape.b * shape.h * shape.n * 2 * per_token


def bytes_moved(shape: Shape, direction: str, computes: str = "linear") -> int:
    """Each of q, k, v and y once, and what a member takes besides; backward reads these and dy, and writes gradients.

    One token also writes the state.
    """
    extras = extra_bytes(computes, shape)
    if computes == "one token":
        return 4 * shape.bytes() + extras + moved_by_triad(shape)
    return 4 * shape.bytes() + extras if direction == "forward" else 12 * shape.bytes() + 3 * extras


def measure_limits(shape: Shape, budget: Budget) -> dict[str, Any]:
    """Rates of the machine and seconds of the native backend, with one thread and with all."""
    threads = sorted({1, torch.get_num_threads()})
    tensors = inputs(shape)
    a, b = torch.randn(GEMM, GEMM), torch.randn(GEMM, GEMM)
    left, right, total = (torch.randn(tuple(shape)) for _ in range(3))
    plain: dict[str, Callable[[], object]] = {
        "gemm": lambda: product(a, b),
        "triad": lambda: torch.add(left, right, out=total),
    }
    for computes in COMPUTES:
        for direction in DIRECTIONS:
            attend = our("native", computes).load()
            plain[f"{computes} {direction}"] = prepare(attend, tensors, direction)
    calls = {f"{name} {count}": _with_threads(call, count) for name, call in plain.items() for count in threads}
    try:
        attend = find(PEER).load()
        peers = {f"{PEER} {direction}": prepare(attend, tensors, direction) for direction in DIRECTIONS}
    except UnavailableError:
        peers = {}
    calls |= {f"{name} {threads[-1]}": _with_threads(call, threads[-1]) for name, call in peers.items()}
    try:
        rounds = {name: budget.rounds(max(once(call), once(call))) for name, call in calls.items()}
        seconds = interleave(calls, rounds)
    finally:
        torch.set_num_threads(threads[-1])
    found = []
    for count in threads:
        least = {
            name: min(seconds[key].values()) for name in (*plain, *peers) if (key := f"{name} {count}") in seconds
        }
        rates = {"gemm_flops": 2 * GEMM**3 / least.pop("gemm"), "triad_bytes": 3 * shape.bytes() / least.pop("triad")}
        found.append({"threads": count, **rates, "seconds": least})
    return {"shape": list(shape), "by_threads": found}


def _with_threads(call: Callable[[], object], count: int) -> Callable[[], object]:
    def run() -> object:
        torch.set_num_threads(count)
        return call()

    return run


def bounds_table(record: Record) -> Table:
    """Milliseconds with all threads beside the two bounds, and what the targets ask for."""
    rows = []
    for limit in record["limits"]:
        shape, rates = Shape(*limit["shape"]), limit["by_threads"][-1]
        for direction in DIRECTIONS:
            for computes in COMPUTES:
                flops = operations(shape, computes, direction)
                busy, moved = flops / rates["gemm_flops"], bytes_moved(shape, direction) / rates["triad_bytes"]
                asked = _asked(shape, computes, direction, rates)
                measured = rates["seconds"][f"{computes} {direction}"]
                cells = (f"{1e3 * x:.2f}" for x in (busy, moved, busy + moved, measured))
                fewer, linear = operations(shape, "linear", direction), rates["seconds"][f"linear {direction}"]
                more = 1 + (flops - fewer) / rates["gemm_flops"] / linear
                ratios = (f"{flops / fewer:.2f}", f"{more:.2f}", f"{measured / linear:.2f}")
                rows.append((str(shape), f"{computes}, {direction}", *cells, _milliseconds(asked), *ratios))
    ratios = ("operations ÷ linear's", "linear + its operations ÷ linear", "÷ linear")
    columns = ("(b, h, n, d)", "native", "operations", "bytes", "both", "measured", "targets ask", *ratios)
    title = "What bounds the kernels: ms of their operations at the GEMM rate, of their bytes at the triad's rate"
    return Table(title, columns, tuple(rows))


def threads_table(record: Record) -> Table:
    """The machine's rates with one thread, and how much faster everything is with all."""
    rows = []
    for limit in record["limits"]:
        one, every = limit["by_threads"][0], limit["by_threads"][-1]
        gains = [every["gemm_flops"] / one["gemm_flops"], every["triad_bytes"] / one["triad_bytes"]]
        gains += [one["seconds"][name] / every["seconds"][name] for name in one["seconds"]]
        rates = (f"{one['gemm_flops'] / 1e9:.0f}", f"{one['triad_bytes'] / 1e9:.1f}")
        rows.append((str(Shape(*limit["shape"])), *rates, *(f"{gain:.2f}" for gain in gains)))
    names = (f"{computes}, {direction}" for computes in COMPUTES for direction in DIRECTIONS)
    columns = ("(b, h, n, d)", "GEMM: GFLOP/s", "triad: GB/s", "× GEMM", "× triad", *(f"× {name}" for name in names))
    return Table("One thread, and how much faster all of them are; the triad is c = a + b", columns, tuple(rows))


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{1e3 * seconds:.2f}"


def _asked(shape: Shape, computes: str, direction: str, rates: Mapping[str, Any]) -> float | None:
    """The seconds within which all targets of this call would be met; None where none speaks of it."""
    if computes == "momentum":
        bounds = [MOMENTUM_RATIO * rates["seconds"][f"linear {direction}"]]
        if direction == "forward":
            bounds.append(shape.useful_flops("momentum") / (SHARE * rates["gemm_flops"]))
        return min(bounds)
    theirs: float | None = rates["seconds"].get(f"{PEER} {direction}")
    return None if theirs is None else theirs / (FORWARD_TIMES if direction == "forward" else BACKWARD_TIMES)


def markdown(record: Record) -> str:
    """What the docs show of a record."""
    where = (
        f"float32, causal, β = {BETA:g}, {record['threads']} threads on {record['cores']} cores of {record['cpu']}, "
        f"torch {record['versions']['torch']}. Command: `{record['command']}`, "
        f"{record['started']}, commit {(record['commit'] or 'unknown')[:12]}"
        f"{' with changes' if record['dirty'] else ''}."
    )
    shown = (f"**{table.title}**\n\n{table.markdown()}" for table in (bounds_table(record), threads_table(record)))
    return "\n".join([where + "\n", *shown])


if __name__ == "__main__":
    if len(sys.argv) != 3 or not sys.argv[2].isdecimal() or int(sys.argv[2]) < 1:
        raise BenchError(__doc__)
    keep_freed_memory()
    torch.set_num_threads(int(sys.argv[2]))
    origin = provenance() | {"command": " ".join(["python -m momentum_transformer.bench.limits", *sys.argv[1:]])}
    write(origin | {"limits": [measure_limits(shape, Budget(seconds=1.0)) for shape in TARGETS]}, Path(sys.argv[1]))
