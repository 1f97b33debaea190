"""A record with numbers that are easy to reckon with, and how its tables must look."""

import io
from typing import Any

from rich.console import Console

from momentum_transformer.bench.attention_tables import terminal
from momentum_transformer.bench.measured_shapes import Shape
from momentum_transformer.bench.timing import DIRECTIONS
from momentum_transformer.report.tables import Table

SHAPES = (Shape(64, 8, 128, 32), Shape(4, 8, 3072, 32))
GEMM_FLOPS = 1e11


def row(name: str, seconds: float | None) -> dict[str, Any]:
    computes = "softmax" if name == "SDPA" else name.split()[-1] if " " in name else "linear"
    found: dict[str, Any] = {"name": name, "computes": computes}
    if seconds is None:
        return found | {"skipped": "≈ 45 s"}
    return found | {"best": seconds, "median": 1.5 * seconds, "rounds": 9}


def block(shape: Shape, direction: str, rows: dict[str, float | None], ratio: float = 1.1) -> dict[str, Any]:
    return {
        "shape": list(shape),
        "direction": direction,
        "gemm_flops": GEMM_FLOPS,
        "rows": [row(name, seconds) for name, seconds in rows.items()],
        "momentum_to_linear": {"native": ratio},
    }


def memory(name: str, shape: Shape, ratio: float, dtype: str = "float32", **more: float) -> dict[str, Any]:
    tensors = 8 * shape.bytes(4 if dtype == "float32" else 2)
    found = {"name": name, "shape": list(shape), "dtype": dtype, "tensors": tensors}
    return found | {"peak": ratio * tensors, "ratio": ratio} | more


def limit(shape: Shape) -> dict[str, Any]:
    """Everything takes 2 ms with one thread; with two, GEMM is 2, the triad 1.25, attention 1.6 times as fast."""
    names = [f"{computes} {direction}" for computes in ("linear", "momentum") for direction in DIRECTIONS]
    one = {"threads": 1, "gemm_flops": GEMM_FLOPS / 2, "triad_bytes": 8e9, "seconds": dict.fromkeys(names, 2e-3)}
    two = {"threads": 2, "gemm_flops": GEMM_FLOPS, "triad_bytes": 1e10, "seconds": dict.fromkeys(names, 1.25e-3)}
    two["seconds"] |= {f"fast-transformers {direction}": 7e-3 for direction in DIRECTIONS}
    return {"shape": list(shape), "by_threads": [one, two]}


def family_record() -> dict[str, Any]:
    """Gated delta takes 1 ms, momentum and coefficients a head as long, momentum delta 2 ms, Transformers 8 ms.

    KDA and one token take 1 ms where Transformers takes 60 ms and 4 ms; two threads take half of everything.
    """
    long, short = Shape(1, 16, 1024, 128), Shape(10, 8, 784, 32)
    members = {
        "linear": 1e-3,
        "momentum": 1e-3,
        "gated delta": 1e-3,
        "gated delta a head": 1e-3,
        "momentum delta": 2e-3,
    }
    groups: list[tuple[str, Shape, str, dict[str, float | None]]] = [
        ("members", shape, direction, {**members, "peer gated delta": 8e-3})
        for shape in (long, short)
        for direction in DIRECTIONS
    ]
    groups.append(("KDA", long, "forward", {"KDA": 1e-3, "peer KDA": 60e-3}))
    groups.append(("one token", long._replace(n=1), "forward", {"one token": 1e-3, "peer one token": 4e-3}))
    blocks = []
    for group, shape, direction, times in groups:
        for threads in (1, 2):
            rows = []
            for name, seconds in times.items():
                computes = name.removeprefix("peer ")
                found = row(
                    f"Transformers {computes}" if computes != name else f"auto {name}", (seconds or 0) / threads
                )
                rows.append(found | {"computes": computes})
            timed = {"group": group, "threads": threads, "shape": list(shape), "direction": direction, "rows": rows}
            blocks.append(timed | {"gemm_flops": GEMM_FLOPS * threads, "triad_bytes": 1e10 * threads})
    kept = {name: value for name, value in record().items() if name not in ("shapes", "limits", "lengths", "long")}
    peaks = [memory("auto gated delta", long, 1.25), memory("auto momentum delta", long, 1.4)]
    return kept | {"command": "momentum bench --family", "family": blocks, "memory": peaks}


def record() -> dict[str, Any]:
    """Linear takes 1 ms, momentum half of the GEMM rate allows, fast-transformers 7 ms, SDPA 10 ms."""
    shapes = []
    for shape in SHAPES:
        half_rate = shape.useful_flops("momentum") / (0.5 * GEMM_FLOPS)
        times = {
            "native linear": 1e-3,
            "native momentum": half_rate,
            "SDPA": 10 * half_rate,
            "fast-transformers": 7e-3,
        }
        shapes += [block(shape, direction, dict(times)) for direction in DIRECTIONS]
    lengths = []
    for n in (64, 256, 1024):
        shape = Shape(1, 8, n, 64)
        times_by_length = {"native momentum": n / 1e6, "SDPA": None if n == 1024 else n * n / 128e6}
        lengths += [block(shape, direction, dict(times_by_length)) for direction in DIRECTIONS]
    long = [Shape(1, 8, 2**i, 64) for i in (19, 20)]
    return {
        "format": 1,
        "commit": "0123456789abcdef",
        "dirty": False,
        "command": "momentum bench",
        "started": "2026-01-01T00:00:00+00:00",
        "versions": {"momentum-transformer": "0.1.0", "torch": "2.13.0"},
        "peers": {"pytorch-fast-transformers": "0.4.0", "fla-core": None},
        "python": "3.11",
        "cpu": "a processor",
        "cores": 2,
        "threads": 2,
        "allocator": "the default",
        "backends": [
            {"name": "native", "available": True, "reason": "AVX-512"},
            {"name": "chunked", "available": True, "reason": "PyTorch"},
            {"name": "quadratic", "available": False, "reason": "[asleep]"},
        ],
        "active": "native",
        "beta": 0.6,
        "contestants": [
            {"name": "SDPA", "computes": "softmax", "status": "agrees", "reason": "", "error": 1e-7},
            {
                "name": "odd",
                "computes": "linear",
                "status": "disagrees",
                "reason": "y is off by 2.0e-01",
                "error": 0.2,
            },
            {"name": "away", "computes": "linear", "status": "unavailable", "reason": "not installed", "error": None},
        ],
        "shapes": shapes,
        "limits": [limit(shape) for shape in SHAPES],
        "lengths": lengths,
        "memory": [
            memory("native momentum", SHAPES[0], 1.1),
            memory("native momentum", SHAPES[1], 1.3),
            memory("native momentum", Shape(1, 8, 1024, 64), 1.1),
        ],
        "long": [
            memory("native momentum", long[0], 1.1, "bfloat16", seconds=2.0),
            memory("native momentum", long[1], 1.1, "bfloat16", seconds=4.2),
            {"name": "native momentum", "shape": list(long[1]), "dtype": "float32", "tensors": 8 * long[1].bytes()}
            | {"skipped": "≈ 21 GB"},
        ],
    }


def assert_fits_the_terminal(table: Table) -> None:
    """In 80 columns, with every word of every cell."""
    shown = io.StringIO()
    Console(file=shown, width=80, highlight=False).print(terminal(table))
    text = shown.getvalue()
    assert "…" not in text, table.title
    assert all(word in text for row in table.rows for cell in row for word in cell.split()), table.title
