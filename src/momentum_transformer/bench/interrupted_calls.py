"""Ctrl-C in a long native call, what listening for it costs, and what the library's checksum costs.

python -m momentum_transformer.bench.interrupted_calls --out results/border.json
"""

import argparse
import json
import os
import signal
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ..attention import momentum_attention, recurrent_attention
from ..backend.cpu import build, native_call
from ..backend.cpu.row_norm_operator import normalized
from ..backend.surroundings import short_convolution
from .record import machine

TOKENS, WIDTH, REPEATS = 200_000, 64, 7


def calls() -> dict[str, Callable[[], Any]]:
    """Long calls, one of each kernel."""
    q = torch.rand(1, 1, TOKENS, WIDTH)
    rows, taps = torch.rand(1, 1, TOKENS, 8 * WIDTH), torch.rand(8 * WIDTH, 4)
    learned = q.clone().requires_grad_()
    y = momentum_attention(learned, learned, learned, beta=0.5, backend="native").sum()
    other = recurrent_attention(learned, learned, learned, alpha=0.9, backend="native").sum()
    return {
        "forward": lambda: momentum_attention(q, q, q, beta=0.5, backend="native"),
        "backward": lambda: y.backward(retain_graph=True),
        "family forward": lambda: recurrent_attention(q, q, q, alpha=0.9, backend="native"),
        "family backward": lambda: other.backward(retain_graph=True),
        "without causal order": lambda: momentum_attention(q, q, q, beta=0.5, causal=False, backend="native"),
        "norm of rows": lambda: normalized(rows, None, None, mean=True, eps=1e-5),
        "short convolution": lambda: short_convolution(rows[0], taps, silu=True),
    }


def seconds(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def interrupted(call: Callable[[], Any], after: float) -> float:
    """Seconds from Ctrl-C to the exception."""
    pressed: list[float] = []

    def press() -> None:
        time.sleep(after)
        pressed.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    try:
        while True:
            call()
    except KeyboardInterrupt:
        ended = time.perf_counter()
    thread.join()
    return ended - pressed[0]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--out", type=Path, required=True)
    out = arguments.parse_args().out
    torch.set_num_threads(1)
    rows = []
    for name, call in calls().items():
        call()
        delays = [interrupted(call, 0.05 + 0.03 * number) for number in range(REPEATS)]
        limit, listening, deaf = native_call.LONG, [], []
        for _ in range(REPEATS):  # in turns, since the machine may have other work
            listening.append(seconds(call))
            native_call.LONG = 2**62
            deaf.append(seconds(call))
            native_call.LONG = limit
        row = {"call": name, "seconds": min(deaf), "listening": min(listening), "most_delay": max(delays)}
        rows.append(row | {"median_delay": statistics.median(delays)})
    library = Path(build.__file__).with_name(build.LIBRARY)
    checksum = min(seconds(lambda: build.is_whole(library)) for _ in range(REPEATS))
    record = {
        "command": "python -m momentum_transformer.bench.interrupted_calls --out results/border.json",
        "machine": machine(),
        "rows": rows,
        "tokens": TOKENS,
        "width": WIDTH,
        "checksum_seconds": checksum,
    }
    out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
