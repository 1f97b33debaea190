"""Time and memory of causal momentum attention: linear in length, small in memory, constant per decoded token.

    python -m momentum_transformer.bench.attention_costs --out results/attention.json

Correctness comes first: the forms must agree before anything is timed.
"""

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from ..attention import linear_attention, momentum_attention
from ..training.allocator import keep_freed_memory
from .record import machine, save

HEADS, WIDTH = 8, 64
LENGTHS = [8_192, 16_384, 32_768, 65_536, 131_072]


def check() -> None:
    """Outputs and gradients of the two forms agree, or nothing is timed."""
    q, k, v = (torch.randn(1, 2, 300, 16, dtype=torch.float64, requires_grad=True) for _ in range(3))
    results = []
    for backend in ("chunked", "recurrent"):
        y = momentum_attention(q, k, v, beta=0.9, backend=backend)
        results.append([y, *torch.autograd.grad(y.square().sum(), (q, k, v))])
    if not all(torch.allclose(a, b, rtol=1e-10, atol=1e-10) for a, b in zip(*results, strict=True)):
        raise SystemExit("the chunked form does not equal the recurrence; nothing was timed")


def forward_backward(n: int, attend: Any) -> float:
    q, k, v = (torch.randn(1, HEADS, n, WIDTH, requires_grad=True) for _ in range(3))
    grad = torch.randn(1, HEADS, n, WIDTH)
    start = time.perf_counter()
    attend(q, k, v).backward(grad)
    return time.perf_counter() - start


def lengths(repeats: int) -> list[dict[str, Any]]:
    """Interleaved, so that a busy minute hurts all alike: best time, and the median ratio within a round."""
    attentions = {
        "momentum": lambda q, k, v: momentum_attention(q, k, v, beta=0.6),
        "linear": linear_attention,
    }
    seconds: dict[tuple[str, int], list[float]] = {(name, n): [] for name in attentions for n in LENGTHS}
    forward_backward(LENGTHS[-1], attentions["momentum"])  # memory that the system has never given out before is slow
    for _ in range(repeats):
        for name, n in seconds:
            seconds[name, n].append(forward_backward(n, attentions[name]))
    rows = []
    for (name, n), times in seconds.items():
        half = seconds.get((name, n // 2))
        ratio = None if half is None else statistics.median(a / b for a, b in zip(times, half, strict=True))
        rows.append(
            {
                "attention": name,
                "n": n,
                "seconds": round(min(times), 4),
                "ratio_to_half_length": None if ratio is None else round(ratio, 3),
            }
        )
    return rows


def peak_memory(n: int) -> dict[str, Any]:
    """Peak resident memory beyond q, k, v and the incoming gradient, measured in a process of its own."""
    program = f"""
import torch
from pathlib import Path
from momentum_transformer import momentum_attention
q, k, v = (torch.randn(1, {HEADS}, {n}, {WIDTH}, requires_grad=True) for _ in range(3))
grad = torch.randn(1, {HEADS}, {n}, {WIDTH})
small = [torch.randn(1, {HEADS}, 256, {WIDTH}, requires_grad=True) for _ in range(3)]
momentum_attention(*small, beta=0.6).sum().backward()
def peak():
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if "VmHWM" in line)
before = peak()
momentum_attention(q, k, v, beta=0.6).backward(grad)
print((peak() - before) * 1024)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    extra = int(run.stdout)
    tensors = 8 * HEADS * n * WIDTH * 4  # q, k, v, y and their gradients, float32
    return {
        "n": n,
        "peak_extra_bytes": extra,
        "bytes_of_q_k_v_y_and_gradients": tensors,
        "ratio": round(extra / tensors, 3),
        "meaning": "everything allocated during forward and backward, y and the gradients of q, k, v included",
    }


def decoding(repeats: int) -> list[dict[str, Any]]:
    """Seconds per token after 10 and after 100,000 tokens."""
    states = {}
    for position in (10, 100_000):
        prefix = (torch.randn(1, HEADS, position, WIDTH) for _ in range(3))
        with torch.no_grad():
            states[position] = momentum_attention(*prefix, beta=0.6, return_state=True)[1]
    token = [torch.randn(1, HEADS, 1, WIDTH) for _ in range(3)]
    best = dict.fromkeys(states, float("inf"))
    with torch.no_grad():
        for _ in range(repeats):
            for position, state in states.items():
                start = time.perf_counter()
                for _ in range(100):
                    momentum_attention(*token, beta=0.6, state=state, return_state=True)
                best[position] = min(best[position], (time.perf_counter() - start) / 100)
    return [{"position": position, "microseconds": round(t * 1e6, 1)} for position, t in best.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the figures there as JSON")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    keep_freed_memory()
    check()
    result = {
        "command": "python -m momentum_transformer.bench.attention_costs",
        "machine": machine(),
        "shape": f"b = 1, h = {HEADS}, d = e = {WIDTH}, float32, causal, forward + backward",
        "lengths": lengths(arguments.repeats),
        "memory": peak_memory(65_536),
        "decoding": decoding(10 * arguments.repeats),
    }
    for row in result["lengths"]:
        print(
            f"{row['attention']:>9} n = {row['n']:>7}: {row['seconds']:8.3f} s, "
            f"{row['ratio_to_half_length'] or '':>6} x half the length"
        )
    print(f"peak extra memory at n = 65536: {result['memory']['ratio']} x the bytes of q, k, v, y and gradients")
    for row in result["decoding"]:
        print(f"decoding at position {row['position']:>6}: {row['microseconds']} us a token")
    slow = [row for row in result["lengths"] if (row["ratio_to_half_length"] or 0) > 2.15]
    if slow or result["memory"]["ratio"] > 1.5:
        print("bounds missed (2.15 x a doubling, 1.5 x the memory): a busy machine, or a regression")
    save(result, arguments.out)


if __name__ == "__main__":
    main()
