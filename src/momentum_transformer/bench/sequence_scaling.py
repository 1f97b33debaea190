"""One sequence over one process and over two: time, memory, and what they exchange.

    python -m momentum_transformer.bench.sequence_scaling --out results/scaling.json

Forward and backward of an encoder on one sequence, one thread a process. First a gate: two processes give the
gradients of one in float64, or nothing is measured. Times are the shortest of some rounds, on the wall and of a core's
time; memory is what the largest process takes beyond what it took before. Bytes are counted as they are sent.
"""

import argparse
import resource
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import start_processes

from .. import context
from ..context import context_parallel
from ..layers import (
    GatedDeltaAttention,
    LinearAttention,
    MomentumAttention,
    MomentumDeltaAttention,
    RetentionAttention,
)
from ..models.encoder import Encoder
from ..training.provenance import machine_load
from .record import machine, save

MIXERS: dict[str, Any] = {
    "linear": LinearAttention(),
    "momentum": MomentumAttention(beta=0.6),
    "retention": RetentionAttention(),
    "gated-delta": GatedDeltaAttention(),
    "momentum-delta": MomentumDeltaAttention(),
}
SIZES = {"depth": 2, "width": 64, "heads": 2, "feedforward": 128}
SHORT = 1024  # a length to compare bytes with


class Sent:
    """Bytes and messages that this process has sent."""

    def __init__(self) -> None:
        self.bytes = self.messages = 0
        self._shifted = context._shifted
        context._shifted = self._counted  # type: ignore[assignment]

    def _counted(self, x: torch.Tensor, among: context.Context, distance: int) -> torch.Tensor:
        self.bytes += x.numel() * x.element_size()
        self.messages += 1
        return self._shifted(x, among, distance)


def one_pass(encoder: Encoder, x: torch.Tensor) -> None:
    encoder.zero_grad()
    with context_parallel():
        encoder(x).square().mean().backward()


def gate(mixer: Any) -> None:
    """Two processes against one, in float64."""
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    encoder = Encoder(1, 8, 2, attention=mixer, feedforward=8).double()
    x = torch.randn(1, 50, 8, dtype=torch.float64)
    encoder(x).square().sum().backward()
    expected = [parameter.grad for parameter in encoder.parameters()]
    encoder.zero_grad()
    with context_parallel():
        encoder(x[:, 50 * rank // size : 50 * (rank + 1) // size]).square().sum().backward()
    for parameter, whole in zip(encoder.parameters(), expected, strict=True):
        found = parameter.grad
        assert found is not None
        assert whole is not None
        dist.all_reduce(found)
        if not torch.allclose(found, whole, rtol=1e-9, atol=1e-10):
            raise SystemExit("two processes do not give the gradients of one; nothing was measured")


def measure(rank: int, size: int, folder: str, name: str, length: int, rounds: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=size)
    gate(MIXERS[name])
    torch.manual_seed(0)
    encoder = Encoder(**SIZES, attention=MIXERS[name], norm="pre")
    sent, found = Sent(), {}
    for n in (SHORT, length):
        x = torch.randn(1, n // size, SIZES["width"])
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        sent.bytes = sent.messages = 0
        walls, cores = [], []
        for _ in range(rounds):
            dist.barrier()
            wall, core = time.perf_counter(), time.process_time()
            one_pass(encoder, x)
            cores.append(time.process_time() - core)
            dist.barrier()
            walls.append(time.perf_counter() - wall)
        peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
        numbers = torch.tensor([min(cores), peak, sent.bytes / rounds, sent.messages / rounds], dtype=torch.float64)
        dist.all_reduce(numbers, op=dist.ReduceOp.MAX)
        core, peak, sent_bytes, messages = numbers.tolist()
        found[n] = {"seconds": min(walls), "core_seconds": core, "memory": peak}
        found[n] |= {"bytes": sent_bytes / SIZES["depth"], "messages": messages / SIZES["depth"]}
    if rank == 0:
        row = {"model": name, "processes": size, "length": length, **found[length], "load": machine_load()}
        torch.save(row | {"bytes_when_short": found[SHORT]["bytes"]}, f"{folder}/row")
    dist.destroy_process_group()


def rows(length: int, rounds: int, models: list[str]) -> list[dict[str, Any]]:
    made = []
    for name in models:
        for size in (1, 2):
            with TemporaryDirectory() as folder:
                start_processes(measure, (size, folder, name, length, rounds), nprocs=size, start_method="spawn")
                made.append(torch.load(f"{folder}/row"))
            print(made[-1], flush=True)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the figures there as JSON")
    parser.add_argument("--length", type=int, default=262_144)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--models", nargs="+", choices=list(MIXERS), default=list(MIXERS))
    arguments = parser.parse_args()
    result = {
        "command": "python -m momentum_transformer.bench.sequence_scaling",
        "machine": machine(),
        "sizes": SIZES,
        "rounds": arguments.rounds,
        "rows": rows(arguments.length, arguments.rounds, arguments.models),
    }
    save(result, arguments.out)


if __name__ == "__main__":
    main()
