"""Where the time of the native kernels goes when memory costs nothing: samples of Linux's `perf`, by part.

    python -m momentum_transformer.bench.kernel_profile --out results/profile.json

One thread, tensors that fit in a core's caches, only samples inside the library, the fastest of several rounds.
The recurrence is what the paper's equations do to the state; its operations at the rate of a matrix product on the
same thread are the least it can take.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from ..backend.products import product
from .contestants import BETA, inputs, our
from .limits import COMPUTES, operations
from .measured_shapes import Shape
from .record import machine, save
from .timing import DIRECTIONS, GEMM, prepare

SHAPES = (Shape(1, 2, 512, 32), Shape(1, 2, 256, 64))
# by their names in results/profile.json: patterns of C++ symbols
PARTS = {
    "recurrence": "scan_tile",
    "features": "pack",
    "sums_and_writing": "outputs|gradients|sum_rows|write",
    "prefetch": "Prefetch::",
}
LINE = re.compile(r"^\s*([\d.]+)%\s+(\S+)\s+\[\S\]\s+(.*)$")


def loop(computes: str, direction: str, shape: Shape, seconds: float) -> dict[str, float]:
    """Call one kernel for a while; how often, and the rate of a matrix product before that."""
    torch.set_num_threads(1)
    a, b = torch.randn(GEMM, GEMM), torch.randn(GEMM, GEMM)
    least = float("inf")
    for _ in range(20):
        start = time.perf_counter()
        product(a, b)
        least = min(least, time.perf_counter() - start)
    call = prepare(our("native", computes).load(), inputs(shape), direction)
    calls, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        call()
        calls += 1
    return {"calls": calls, "gemm_flops": 2 * GEMM**3 / least}


def parts(report: str) -> dict[str, float]:
    """Nanoseconds in each part of the library, from the text of `perf report`."""
    events = re.search(r"Event count \(approx\.\): (\d+)", report)
    if events is None:
        raise SystemExit("perf reported no samples")
    found = dict.fromkeys((*PARTS, "other"), 0.0)
    for line in report.splitlines():
        match = LINE.match(line)
        if match is None or "_native" not in match[2]:
            continue
        name = next((part for part, pattern in PARTS.items() if re.search(pattern, match[3])), "other")
        found[name] += float(match[1]) / 100 * int(events[1])
    return found


def profile(computes: str, direction: str, shape: Shape, seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        data = str(Path(scratch) / "perf.data")
        arguments = ["--loop", computes, direction, ",".join(map(str, shape)), "--seconds", str(seconds)]
        command = ["perf", "record", "-e", "cpu-clock", "-F", "1999", "-o", data, "--"]
        command += [sys.executable, "-m", "momentum_transformer.bench.kernel_profile", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        shown = ["perf", "report", "-i", data, "--stdio", "--sort", "dso,symbol", "--percent-limit", "0.01"]
        report = subprocess.run(shown, capture_output=True, text=True, check=True).stdout
    child = json.loads(done.stdout.splitlines()[0])
    tokens = child["calls"] * shape.b * shape.h * shape.n
    nanoseconds = {name: value / tokens for name, value in parts(report).items()}
    a_token = operations(shape, computes, direction) / (shape.b * shape.h * shape.n)
    row = {"shape": list(shape), "computes": computes, "direction": direction, "gemm_flops": child["gemm_flops"]}
    return row | {"operations": a_token, "nanoseconds": nanoseconds, "total": sum(nanoseconds.values())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--loop", nargs=3, metavar=("COMPUTES", "DIRECTION", "SHAPE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.loop:
        computes, direction, shape = options.loop
        sys.stdout.write(json.dumps(loop(computes, direction, Shape(*map(int, shape.split(","))), options.seconds)))
        sys.stdout.write("\n")
        return
    if shutil.which("perf") is None:
        raise SystemExit("this needs perf (Debian: apt install linux-perf)")
    cases = [(computes, direction, shape) for shape in SHAPES for direction in DIRECTIONS for computes in COMPUTES]
    rounds = [[profile(*case, options.seconds) for case in cases] for _ in range(options.rounds)]
    rates = [row["gemm_flops"] for found in rounds for row in found]
    rows = [min(found, key=lambda row: row["total"]) for found in zip(*rounds, strict=True)]
    for row in rows:
        sys.stdout.write(f"{json.dumps(row)}\n")
    command = "python -m momentum_transformer.bench.kernel_profile --out results/profile.json"
    kept = {"beta": BETA, "gemm_flops": max(rates), "rows": rows}
    save({"command": command, "machine": machine() | {"threads": 1}} | kept, options.out)


if __name__ == "__main__":
    main()
