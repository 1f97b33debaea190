"""Peak memory of forward + backward, measured in a process of its own.

Contestant, shape, dtype, calls and threads:

    python -m momentum_transformer.bench.memory "native momentum" 1,8,65536,64 float32 1 2
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from ..training.allocator import keep_freed_memory
from .contestants import adapted, find, inputs
from .measured_shapes import BenchError, Shape, parse_shape
from .members import extra_bytes
from .timing import available_memory

SMALLEST = 30e6  # bytes; below, the process's own comings and goings matter


def measure(name: str, shape: Shape, dtype: str = "float32", *, calls: int = 1, factor: float = 1.2) -> dict[str, Any]:
    """Peak bytes of a call, inputs included; with more calls than one, also the best seconds of the later ones.

    Not tried where `factor` times the bytes of inputs, outputs and gradients could not be had.
    """
    tensors = _tensors(name, shape, getattr(torch, dtype).itemsize)
    row: dict[str, Any] = {"name": name, "shape": list(shape), "dtype": dtype, "tensors": tensors}
    if not Path("/proc/self/clear_refs").exists():
        return row | {"skipped": "peak memory is measured on Linux only"}
    if tensors < SMALLEST:
        return row | {"skipped": "too small to tell"}
    if factor * tensors > 0.9 * available_memory():
        return row | {"skipped": f"≈ {factor * tensors / 1e9:.0f} GB"}
    words = [name, ",".join(map(str, shape)), dtype, str(calls), str(torch.get_num_threads())]
    program = [sys.executable, "-m", "momentum_transformer.bench.memory", *words]
    done = subprocess.run(program, capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"ended with code {done.returncode}"]
        return row | {"skipped": lines[-1]}
    row |= json.loads(done.stdout.splitlines()[-1])
    return row | {"ratio": row["peak"] / tensors}


def _tensors(name: str, shape: Shape, size: int) -> int:
    """Bytes of q, k, v, y, of what a member takes besides, and of all their gradients."""
    return 8 * shape.bytes(size) + 2 * extra_bytes(find(name).computes, shape, size)


def _status(field: str) -> int:
    """Bytes, from what Linux knows of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def _forward_backward(name: str, shape: Shape, dtype: torch.dtype, calls: int) -> dict[str, Any]:
    contestant = find(name)
    attend = contestant.load()
    *leaves, grad = adapted(contestant, inputs((1, shape.h, 256, shape.d), dtype, contestant.computes))
    attend(*leaves).backward(grad)  # whatever is loaded at first use is not the call's own
    del leaves, grad
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    before = _status("VmRSS")
    *leaves, grad = adapted(contestant, inputs(shape, dtype, contestant.computes))
    seconds = []
    found: dict[str, Any] = {}
    for i in range(calls):
        for leaf in leaves:
            leaf.grad = None
        start = time.perf_counter()
        attend(*leaves).backward(grad)
        seconds.append(time.perf_counter() - start)
        if i == 0:
            found["peak"] = _status("VmHWM") - before
    return found if calls == 1 else found | {"seconds": min(seconds[1:])}


if __name__ == "__main__":
    if len(sys.argv) != 6:
        raise BenchError(__doc__)
    torch.set_num_threads(int(sys.argv[5]))
    if int(sys.argv[4]) > 1:  # time is measured with freed memory kept, memory itself is not
        keep_freed_memory()
    result = _forward_backward(sys.argv[1], parse_shape(sys.argv[2]), getattr(torch, sys.argv[3]), int(sys.argv[4]))
    sys.stdout.write(json.dumps(result) + "\n")
