"""Measurements of kernels, blocks and training steps as tables of the docs."""

from ..report.tables import Table
from .record import commit_of
from .targets import Record

ATTENTION_SHARE = 0.15  # of a training step, at the most
SLOWER = 1.05  # than the version before, at the most


def attention_table(result: Record) -> str:
    """Time, memory and decoding figures of bench/attention_costs.py."""
    lines = ["| length | momentum: s | × half the length | linear: s |", "|---|---:|---:|---:|"]
    seconds = {(row["attention"], row["n"]): row for row in result["lengths"]}
    for (name, n), row in seconds.items():
        if name == "momentum":
            ratio = "" if row["ratio_to_half_length"] is None else f"{row['ratio_to_half_length']:.2f}"
            lines.append(f"| {n:,} | {row['seconds']:.2f} | {ratio} | {seconds['linear', n]['seconds']:.2f} |")
    machine, memory, decoding = result["machine"], result["memory"], result["decoding"]
    lines += [
        "",
        f"Measured at {result['shape']}, on {machine['cores']} cores ({machine['cpu']}, "
        f"torch {machine['torch']}). Peak extra memory at n = {memory['n']:,}: {memory['ratio']:.2f} × "
        "the bytes of q, k, v, y and their gradients. One decoded token takes "
        + " and ".join(f"{row['microseconds']:.0f} µs at position {row['position']:,}" for row in decoding)
        + f". The allocator keeps freed memory. Command: `{result['command']}`.",
    ]
    return "\n".join(lines) + "\n"


def profile_table(result: Record) -> str:
    """Where the time of the native kernels goes, by bench/kernel_profile.py."""
    parts = {
        "recurrence": "recurrence",
        "features": "φ and packing",
        "sums_and_writing": "denominators, writing",
        "prefetch": "prefetch",
        "other": "other",
    }
    columns = (
        "(b, h, n, d)",
        "native",
        "ns a token",
        *parts.values(),
        "operations at GEMM's rate",
        "÷ linear",
        "least",
    )
    rows: list[tuple[str, ...]] = []
    linear: dict[str, float] = {}
    for row in result["rows"]:
        least = row["operations"] / result["gemm_flops"] * 1e9
        if row["computes"] == "linear":
            linear = {"total": row["total"], "least": least}
        cells = [str(tuple(row["shape"])), f"{row['computes']}, {row['direction']}", f"{row['total']:.1f}"]
        cells += [f"{100 * row['nanoseconds'][part] / row['total']:.0f} %" for part in parts]
        more = 1 + (least - linear["least"]) / linear["total"]
        cells += [f"{least:.1f}", f"{row['total'] / linear['total']:.2f}", f"{more:.2f}"]
        rows.append(tuple(cells))
    machine = result["machine"]
    commit = commit_of(machine)
    where = (
        f"β = {result['beta']:g}, float32, one thread ({machine['cpu']}, torch {machine['torch']}), GEMM at "
        f"{result['gemm_flops'] / 1e9:.0f} GFLOP/s, nanoseconds inside the library for a token of one head; "
        f"{machine['started']}, commit {commit}. Command: `{result['command']}`."
    )
    return f"{Table('', columns, tuple(rows)).markdown()}\n{where}\n"


def blocks_table(result: Record) -> str:
    """Where the time of a block goes, by bench/blocks.py."""
    around = ("convolution", "gates", "unit rows", "norm and gate")
    parts = ("projections", "feed-forward", "norms and residuals", "recurrence", *around)
    columns = ("(b, n, width, heads, hidden)", "mixer", "block: ms", "in PyTorch's way", "faster", *parts)
    rows = []
    for row in result["rows"]:
        times = row["milliseconds"]
        for direction in times["block"]:
            block, before = (times[name][direction] for name in ("block", "block, PyTorch"))
            cells = [str(tuple(row["size"].values())), f"{row['mixer']}, {direction}", f"{block:.1f}", f"{before:.1f}"]
            cells.append(f"{before / block:.2f} ×")
            for part in parts:
                cell = f"{100 * times[part][direction] / block:.1f} %" if part in times else ""
                if part in around and part in times:
                    cell += f" ({100 * times[f'{part}, PyTorch'][direction] / before:.1f} %)"
                cells.append(cell)
            rows.append(tuple(cells))
    machine = result["machine"]
    stand_in = " Momentum attention with a constant β stands in for the recurrence." if result["stand_in"] else ""
    where = (
        f"float32, one thread, CPU time ({machine['cpu']}, torch {machine['torch']}); {machine['started']}, "
        f"commit {commit_of(machine)}. Shares of the "
        f"block, in brackets in PyTorch's way; each part is timed by itself, so they need not add up.{stand_in} "
        f"Command: `{result['command']}`."
    )
    return f"{Table('', columns, tuple(rows)).markdown()}\n{where}\n"


def accuracy_table(result: Record) -> str:
    """The errors that bench/accuracy.py found."""
    columns = ("output_median", "output_worst", "gradient_median", "gradient_worst")
    lines = ["| dtype | backend | " + " | ".join(name.replace("_", ": ") for name in columns) + " |"]
    lines.append("|---|---|" + "---:|" * len(columns))
    for row in result["rows"]:
        cells = " | ".join(f"{row[name]:.1e}" for name in columns)
        lines.append(f"| {row['dtype']} | {row['backend']} | {cells} |")
    betas = ", ".join("none (linear)" if beta is None else f"{beta:g}" for beta in result["betas"])
    lines += [
        "",
        f"Over {result['rows'][0]['cases']} cases each: β {betas}; shapes (b, h, n, d, e) "
        + ", ".join(str(tuple(shape)) for shape in result["shapes"])
        + f". Command: `{result['command']}`.",
    ]
    return "\n".join(lines) + "\n"


def training_table(result: Record) -> str:
    """Where a training step goes, by bench/training_step.py."""
    columns = ("model", "steps", "s a step", "the loop adds", "attention", f"< {100 * ATTENTION_SHARE:.0f} %")
    rows = tuple(
        (
            row["model"],
            str(row["steps"]),
            f"{row['step_seconds']:.2f}",
            f"{100 * row['loop_overhead']:.2f} %",
            f"{100 * row['attention_share']:.1f} %",
            "yes" if row["attention_share"] < ATTENTION_SHARE else "no",
        )
        for row in result["rows"]
    )
    machine = result["machine"]
    threads = f"{machine['threads']} thread{'s' * (machine['threads'] > 1)} on {machine['cores']} cores"
    where = (
        f"{result['meaning']}; the {result['backend']} backend, {threads} ({machine['cpu']}, torch "
        f"{machine['torch']}), {machine['started']}. Command: `{result['command']}`."
    )
    return f"{Table('', columns, rows).markdown()}\n{where[0].upper()}{where[1:]}\n"


def versions_table(result: Record, *elsewhere: Record) -> str:
    """Linear and momentum attention against an older version, by bench/older_version.py, on each machine."""
    return "\n".join(map(_versions, (result, *elsewhere)))


def _versions(result: Record) -> str:
    rows = tuple(
        (
            row["case"],
            f"{row['older_ms']:.3g}",
            f"{row['newer_ms']:.3g}",
            f"{row['ratio']:.3f}",
            "yes" if row["ratio"] <= SLOWER else "no",
        )
        for row in result["rows"]
    )
    machine = result["machine"]
    where = (
        f"Best ms of both in turns, {result['threads']} thread ({machine['cpu']}, torch {machine['torch']}), "
        f"{machine['started']}; {result['older']} against {result['newer']}{' with changes' * machine['dirty']}. "
        "Command: `python -m momentum_transformer.bench.older_version OLDER --out results/versions.json`."
    )
    columns = ("case", "before", "now", "now ÷ before", f"≤ {SLOWER:g}")
    return f"{Table('', columns, rows).markdown()}\n{where}\n"


def steps_table(result: Record, *elsewhere: Record) -> str:
    """Whole training steps against an older version, by bench/older_version.py, on each machine."""
    return "\n".join(map(_steps, (result, *elsewhere)))


def _steps(result: Record) -> str:
    gemm, *rows = result["rows"]
    rate = gemm["product_operations"] / gemm["newer_ms"]  # operations a millisecond
    columns = ("a training step", "before: ms", "now: ms", "before ÷ now", "its matrix products at GEMM's rate: ms")
    cells = []
    for row in rows:
        before, now, least = row["older_ms"], row["newer_ms"], row["product_operations"] / rate
        cells.append((row["case"], f"{before:.0f}", f"{now:.0f}", f"{before / now:.2f}", f"{least:.0f}"))
    machine = result["machine"]
    return (
        f"{Table('', columns, tuple(cells)).markdown()}\n"
        f"Versions {result['older']} and {result['newer']}, one thread, float32, the processor's time, best of many "
        f"by turns; GEMM is the product of 1024 × 1024 matrices, at {rate / 1e6:.0f} GFLOP/s ({machine['cpu']}, torch "
        f"{machine['torch']}). Command: `{result['command']}`.\n"
    )
