"""Rewrite what README and docs take from results/: python docs/update.py

Writes docs/results/ (figures and tables of the report) and the tables between `<!-- results:NAME -->` and
`<!-- end -->` in the PAGES.
"""

import json
import re
import tempfile
from pathlib import Path
from typing import Any

from momentum_transformer.bench import contexts, limits, suite
from momentum_transformer.bench.attention_tables import markdown
from momentum_transformer.bench.family_tables import markdown as family_markdown
from momentum_transformer.bench.plot import draw
from momentum_transformer.bench.transformers_tables import headline as transformers_headline
from momentum_transformer.bench.transformers_tables import markdown as transformers_markdown
from momentum_transformer.report.claims import claims_markdown
from momentum_transformer.report.collect import collect
from momentum_transformer.report.page import write_report
from momentum_transformer.report.tables import Table

ROOT = Path(__file__).parent.parent
ATTENTION_SHARE = 0.15  # of a training step, at the most
SLOWER = 1.05  # than the version before, at the most
PAGES = (
    "README.md",
    "docs/bad-input.md",
    "docs/claims.md",
    "docs/experiments.md",
    "docs/gap.md",
    "docs/performance.md",
    "docs/robustness.md",
    "docs/scaling.md",
    "docs/text.md",
)
MODELLED = ("momentum", "gated-delta")  # of the cost model of scaling
LATENCY, BANDWIDTH = 20e-6, 12.5e9  # seconds a message, bytes a second: assumptions of that model
STUDIED = ("gap-small", "gap-apart-small", "gap-state-small", "regression-small")  # parts of a study that is under way


def tables(out: Path) -> dict[str, str]:
    """The Markdown of every table, by name; figures are written to `out` on the way."""
    with tempfile.TemporaryDirectory() as scratch:
        _, left_out = write_report([ROOT / "results"], Path(scratch))
        out.mkdir(parents=True, exist_ok=True)
        for figure in sorted(Path(scratch).glob("*.svg")):
            (out / figure.name).write_text(figure.read_text())
        found = dict.fromkeys(STUDIED, "Not run yet: `momentum reproduce gap`.\n")
        found["text-small"] = "Not run yet: `momentum reproduce text --seeds 3`.\n"
        found |= {path.stem: path.read_text() for path in sorted(Path(scratch).glob("*.md"))}
    others = {
        "unfinished": "".join(f"- `{line.removeprefix(f'{ROOT}/').replace(': ', '`: ', 1)}\n" for line in left_out),
        "claims": claims_markdown(collect([ROOT / "results"])[0], ROOT / "results"),
        "accuracy": accuracy_table(),
        "training": training_table(),
        "steps": steps_table(),
        "family": family_tables(),
        "versions": versions_table(),
        "generation": generation_table("generation"),
        "decoding": generation_table("decoding"),
        "contexts": contexts_table(out),
        "translation": translation_table(),
        "faults": faults_table(),
        **scaling_tables(),
        **transformers_tables(),
    }
    kernels = {"bench": bench_tables(out), "limits": limits_tables(), "profile": profile_table()}
    kernels |= {"blocks": blocks_table()}
    kernels |= {"fuzz": fuzz_table(), "load": load_table(), "border": border_table()}
    return found | others | kernels | {"attention": attention_table()}


def scaling_tables() -> dict[str, str]:
    """One sequence over processes, by bench/sequence_scaling.py, and what follows for more of them."""
    path = ROOT / "results" / "scaling.json"
    if not path.exists():
        missing = (
            "Not measured yet: `python -m momentum_transformer.bench.sequence_scaling --out results/scaling.json`.\n"
        )
        return {"scaling": missing, "scaling-model": missing}
    result = json.loads(path.read_text())
    rows = {(row["model"], row["processes"]): row for row in result["rows"]}
    return {"scaling": scaling_table(result, rows), "scaling-model": scaling_model(result["sizes"]["depth"], rows)}


def scaling_table(result: dict[str, Any], rows: dict[tuple[str, int], dict[str, Any]]) -> str:
    """One process and two, model by model."""
    of_both = "tokens/s of a core's time, 1 process | 2 processes | ratio | MB a process, 1 | 2"
    lines = [f"| model | {of_both} | bytes a layer and step | the same at 1,024 tokens | messages |"]
    lines.append("|---|" + "---:|" * 8)
    for name in dict.fromkeys(name for name, _ in rows):
        one, two = rows[name, 1], rows[name, 2]
        rates = [row["length"] / row["core_seconds"] for row in (one, two)]
        cells = [name, f"{rates[0]:,.0f}", f"{rates[1]:,.0f}", f"{rates[1] / rates[0]:.2f}"]
        cells += [f"{one['memory'] / 1e6:,.0f}", f"{two['memory'] / 1e6:,.0f}", f"{two['bytes']:,.0f}"]
        cells += [f"{two['bytes_when_short']:,.0f}", f"{two['messages']:.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    sizes, machine, loads = result["sizes"], result["machine"], [row["load"] for row in result["rows"]]
    lines += [
        "",
        f"One sequence of {result['rows'][0]['length']:,} tokens, forward and backward, float32: "
        f"{sizes['depth']} layers of width {sizes['width']}, {sizes['heads']} heads, {sizes['feedforward']} hidden "
        f"features; one thread a process, {machine['cores']} cores ({machine['cpu']}, torch {machine['torch']}). "
        "Tokens are those of the whole sequence, time is that of the busiest process on its core, since other work "
        "shared the machine: "
        f"{min(loads):.0f} to {max(loads):.0f} processes wanted a core. Command: `{result['command']}`.",
    ]
    return "\n".join(lines) + "\n"


def scaling_model(depth: int, rows: dict[tuple[str, int], dict[str, Any]]) -> str:
    """More processes than there are: work by the token, and exchanges at an assumed latency and bandwidth."""
    lines = [f"| tokens | processes | {' | '.join(f'{name}: tokens/s | efficiency' for name in MODELLED)} |"]
    lines.append("|---:|---:|" + "---:|---:|" * len(MODELLED))
    for tokens, size in ((tokens, size) for tokens in (2**18, 2**24) for size in (8, 64, 256, 1024)):
        cells = []
        for name in MODELLED:
            one, two = rows[name, 1], rows[name, 2]
            work = two["core_seconds"] * 2 / two["length"] * tokens / size
            exchanges = 1 + (size - 2).bit_length()
            sent = depth * exchanges * (two["messages"] * LATENCY + two["bytes"] / BANDWIDTH)
            alone = one["core_seconds"] / one["length"] * tokens
            cells += [f"{tokens / (work + sent):,.0f}", f"{alone / (work + sent) / size:.0%}"]
        lines.append(f"| {tokens:,} | {size:,} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def attention_table() -> str:
    """Time, memory and decoding figures of bench/attention_costs.py."""
    result = json.loads((ROOT / "results" / "attention.json").read_text())
    lines = ["| length | momentum: s | × half the length | linear: s |", "|---|---:|---:|---:|"]
    seconds = {(row["attention"], row["n"]): row for row in result["lengths"]}
    for (name, n), row in seconds.items():
        if name == "momentum":
            ratio = "" if row["ratio_to_half_length"] is None else f"{row['ratio_to_half_length']:.2f}"
            lines.append(f"| {n:,} | {row['seconds']:.2f} | {ratio} | {seconds['linear', n]['seconds']:.2f} |")
    machine, memory, decoding = result["machine"], result["memory"], result["decoding"]
    lines += [
        "",
        f"Causal forward and backward, {result['shape']}, on {machine['cores']} cores ({machine['cpu']}, "
        f"torch {machine['torch']}). Peak extra memory at n = {memory['n']:,}: {memory['ratio']:.2f} × "
        "the bytes of q, k, v, y and their gradients. One decoded token takes "
        + " and ".join(f"{row['microseconds']:.0f} µs at position {row['position']:,}" for row in decoding)
        + f". The allocator keeps freed memory. Command: `{result['command']}`.",
    ]
    return "\n".join(lines) + "\n"


def bench_tables(out: Path) -> str:
    """Targets and timings of `momentum bench`; the picture goes to `out`."""
    path = ROOT / "results" / "bench.json"
    if not path.exists():
        return "Nothing has been measured yet: `make bench`.\n"
    record = suite.read(path)
    (out / "bench.svg").write_text(draw(record))
    return markdown(record)


def transformers_tables() -> dict[str, str]:
    """Transformers' mixers and models, alone and on our kernels, by `momentum bench --transformers`."""
    path = ROOT / "results" / "transformers.json"
    if not path.exists():
        missing = "Not measured yet: `momentum bench --transformers --out results/transformers.json`.\n"
        return {"transformers": missing, "transformers-headline": missing}
    record = json.loads(path.read_text())
    return {"transformers": transformers_markdown(record), "transformers-headline": transformers_headline(record)}


def limits_tables() -> str:
    """What bounds the native kernels, by bench/limits.py."""
    path = ROOT / "results" / "limits.json"
    return limits.markdown(json.loads(path.read_text())) if path.exists() else "Not measured yet: `make bench`.\n"


def profile_table() -> str:
    """Where the time of the native kernels goes, by bench/kernel_profile.py."""
    result = json.loads((ROOT / "results" / "profile.json").read_text())
    parts = {
        "recurrence": "recurrence",
        "features": "φ and packing",
        "sums_and_writing": "denominators, writing",
        "asking_ahead": "prefetch",
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
    commit = f"{(machine['commit'] or 'unknown')[:12]}{' with changes' if machine['dirty'] else ''}"
    where = (
        f"β = {result['beta']:g}, float32, one thread ({machine['cpu']}, torch {machine['torch']}), GEMM at "
        f"{result['gemm_flops'] / 1e9:.0f} GFLOP/s, nanoseconds inside the library for a token of one head; "
        f"{machine['started']}, commit {commit}. Command: `{result['command']}`."
    )
    return f"{Table('', columns, tuple(rows)).markdown()}\n{where}\n"


def blocks_table() -> str:
    """Where the time of a block goes, by bench/blocks.py."""
    path = ROOT / "results" / "blocks.json"
    if not path.exists():
        return "Not measured yet: `python -m momentum_transformer.bench.blocks`.\n"
    result = json.loads(path.read_text())
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
        f"commit {(machine['commit'] or 'unknown')[:12]}{' with changes' if machine['dirty'] else ''}. Shares of the "
        f"block, in brackets in PyTorch's way; each part is timed by itself, so they need not add up.{stand_in} "
        f"Command: `{result['command']}`."
    )
    return f"{Table('', columns, tuple(rows)).markdown()}\n{where}\n"


def accuracy_table() -> str:
    """The errors that bench/accuracy.py found."""
    result = json.loads((ROOT / "results" / "accuracy.json").read_text())
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


def training_table() -> str:
    """Where a training step goes, by bench/training_step.py."""
    result = json.loads((ROOT / "results" / "training.json").read_text())
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


def family_tables() -> str:
    """Targets, bounds and timings of `momentum bench --family`."""
    path = ROOT / "results" / "family.json"
    return family_markdown(suite.read(path, "family")) if path.exists() else "Not measured yet: `make bench`.\n"


def versions_table() -> str:
    """Linear and momentum attention against an older version, by bench/older_version.py."""
    result = json.loads((ROOT / "results" / "versions.json").read_text())
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


def steps_table() -> str:
    """Whole training steps against an older version, by bench/older_version.py."""
    result = json.loads((ROOT / "results" / "steps.json").read_text())
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


def generation_table(name: str) -> str:
    """Images per second, by bench/picture_speed.py."""
    result = json.loads((ROOT / "results" / f"{name}.json").read_text())
    for row in result["rows"]:
        row.setdefault("threads", result["machine"]["threads"])  # of results from before it was noted
    methods = {
        "recurrent": "recurrent",
        "cache": "key-value cache",
        "recompute": "prefix recomputed",
        "matrices": "its matrix multiplications alone",
        "peer": "fast-transformers",
    }
    columns = ("model", "how", "batch", "threads", "images/s", "ms a byte", "÷ matrices")
    lines = ["| " + " | ".join((*columns, "state of an image", "memory of an image")) + " |"]
    lines.append("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    for row in result["rows"]:
        state, memory = (f"{row[f'{name}_per_image'] / 1024:,.0f} KiB" for name in ("bytes", "memory"))
        bare = row["method"] == "matrices"
        lines.append(
            f"| {row['model']} | {methods[row['method']]} | {row['batch']} | {row['threads']} "
            f"| {row['images_per_second']:.3g} | {row['milliseconds_per_byte']:.2f} "
            f"| {to_matrices(row, result['rows']):.2f} | " + (" | |" if bare else f"{state} | {memory} |")
        )
    lines += ["", *generation_targets(result["rows"])]
    machine = result["machine"]
    lines += [
        "",
        f"{result['what']}; {result['meaning']}. {machine['cores']} cores ({machine['cpu']}, "
        f"torch {machine['torch']}). Command: `{result['command']}`.",
    ]
    return "\n".join(lines) + "\n"


def contexts_table(out: Path) -> str:
    """Decoding against the length of the context, by bench/decoding_speed.py; the picture goes to `out`."""
    path = ROOT / "results" / "contexts.json"
    if not path.exists():
        return "Not measured yet: `python -m momentum_transformer.bench.decoding_speed --out results/contexts.json`.\n"
    record = json.loads(path.read_text())
    (out / "contexts.svg").write_text(contexts.draw(record))
    return contexts.markdown(record)


def to_matrices(row: dict[str, Any], rows: list[dict[str, Any]]) -> float:
    """How long a row takes, in terms of its bare matrix multiplications; the paper's models have those of linear."""
    bare = {x["model"]: x for x in rows if x["method"] == "matrices" and same_setting(x, row)}
    time: float = bare.get(row["model"], bare["linear"])["milliseconds_per_byte"]
    return float(row["milliseconds_per_byte"]) / time


def same_setting(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return (a["batch"], a["threads"]) == (b["batch"], b["threads"])


def generation_targets(rows: list[dict[str, Any]]) -> list[str]:
    """The slowest linear-time model against its bare matrix multiplications, and ours against the peer's."""
    lines = ["| target | batch | threads | bound | measured | met |", "|---|---:|---:|---:|---:|---:|"]
    for bare in (row for row in rows if row["model"] == "linear" and row["method"] == "matrices"):
        at = [row for row in rows if same_setting(row, bare)]
        setting = f"{bare['batch']} | {bare['threads']}"
        share, model = max((to_matrices(row, rows), row["model"]) for row in at if row["method"] == "recurrent")
        name = f"a step ÷ its matrix multiplications, the slowest: {model}"
        lines.append(f"| {name} | {setting} | ≤ 1.6 | {share:.2f} | {'yes' if share <= 1.6 else 'no'} |")
        times = {row["method"]: row["milliseconds_per_byte"] for row in at if row["model"] == "linear"}
        if "peer" in times:
            ratio, least = times["peer"] / times["recurrent"], 2.5 if bare["batch"] == 1 else 2.0
            name, met = "linear: images/s ÷ fast-transformers'", "yes" if ratio >= least else "no"
            lines.append(f"| {name} | {setting} | ≥ {least:g} | {ratio:.2f} | {met} |")
    return lines


def translation_table() -> str:
    """Tokens per second of the translators, by bench/translation_speed.py, and whether they meet what is asked."""
    path = ROOT / "results" / "translation.json"
    if not path.exists():
        return "Not measured yet: `make bench`.\n"
    result = json.loads(path.read_text())
    rows = {(row["model"], row["batch"], row["length"]): row for row in result["rows"]}
    models = list(dict.fromkeys(model for model, _, _ in rows))
    speeds = list(dict.fromkeys((batch, n) for model, batch, n in rows if model == models[0]))
    lengths = sorted({n for _, batch, n in rows if (batch, n) not in speeds})
    columns = [f"batch {batch}: tokens/s" for batch, _ in speeds] + [f"{n} tokens: ms" for n in lengths]
    lines = ["| model | " + " | ".join(columns) + " |", "|---|" + "---:|" * len(columns)]
    for model in models:
        cells = [f"{rows[model, *speed]['tokens_per_second']:,.0f}" for speed in speeds]
        timed = [rows.get((model, 8, n)) for n in lengths]
        cells += ["" if row is None else f"{1000 * row['seconds']:.0f}" for row in timed]
        lines.append(f"| {model} | " + " | ".join(cells) + " |")
    ratios = [f"{rows['momentum', *speed]['speed_to_linear']:.4f}" for speed in speeds]
    last, before = lengths[-1], next(n for n in lengths if 8 * n >= lengths[-1])
    growth = {
        model: rows[model, 8, last]["seconds"] / rows[model, 8, before]["seconds"] for model in ("momentum", "softmax")
    }
    machine = result["machine"]
    lines += [
        "",
        f"{result['what']}; {result['meaning']}. Momentum's tokens per second ÷ linear's: {' and '.join(ratios)} "
        f"(asked: 0.97 or more). From {before} to {last} tokens, {last // before} times as many, 8 sentences at a "
        f"time, momentum takes {growth['momentum']:.1f} times as long, softmax {growth['softmax']:.1f} times. "
        f"{machine['cores']} cores ({machine['cpu']}, torch {machine['torch']}). Command: `{result['command']}`.",
    ]
    return "\n".join(lines) + "\n"


def faults_table() -> str:
    """Kills, crashes and full disks, by tests/faults."""
    path = ROOT / "results" / "faults.json"
    if not path.exists():
        return "Not run yet: `python -m tests.faults --out results/faults.json`.\n"
    result = json.loads(path.read_text())
    costs = ("stuck", "lost", "different")
    cells = [(row["what"], f"{row['faults']:,}", *(str(row[cost]) for cost in costs)) for row in result["rows"]]
    total = [sum(row[name] for row in result["rows"]) for name in ("faults", *costs)]
    cells.append(("**all**", *(f"**{count:,}**" for count in total)))
    machine = result["machine"]
    commit = f"{(machine['commit'] or 'unknown')[:12]}{' with changes' if machine['dirty'] else ''}"
    where = (
        f"{machine['cores']} cores ({machine['cpu']}, torch {machine['torch']}), {machine['started']}, commit {commit}"
    )
    table = Table("", ("what happened", "faults", *costs), tuple(cells)).markdown()
    return f"{table}\n{where}. Command: `{result['command']}`.\n"


def fuzz_table() -> str:
    """What tests/fuzz found, parser by parser."""
    path = ROOT / "results" / "fuzz.json"
    if not path.exists():
        return "Not run yet: `python -m tests.fuzz --out results/fuzz.json`.\n"
    result = json.loads(path.read_text())
    columns = ("reader", "mutations", "read", "refused", "tracebacks and crashes", "slowest: s", "most memory: MB")
    rows = [
        (
            row["parser"],
            *(f"{row[name]:,}" for name in ("cases", "accepted", "refused", "failures")),
            f"{row['slowest']:.2f}",
            f"{row['largest'] / 2**20:.0f}",
        )
        for row in result["rows"]
    ]
    limits = result["limits"]
    said = (
        f"Over {limits['seconds']:g} s: {sum(row['slow'] for row in result['rows'])}; no process may take more than "
    )
    said += f"{limits['bytes'] / 2**20:.0f} MB. Times are of the processor. Command: `{result['command']}`."
    return f"{Table('', columns, tuple(rows)).markdown()}\n{said}\n"


def load_table() -> str:
    """Honest viewers under load, by tests/load.py."""
    path = ROOT / "results" / "load.json"
    if not path.exists():
        return "Not run yet: `python -m tests.load --out results/load.json`.\n"
    result = json.loads(path.read_text())
    columns = ("others", "open after 1 s", "after their deadline", "viewers", "served", "median: s", "longest: s")
    kinds = {name: row for name, row in result["rows"].items() if name != "at once"}
    rows = [
        (
            f"{row['hostile']} {name}" if "hostile" in row else name,
            str(row.get("open_after_a_second", "")),
            str(row.get("open_after_a_deadline", "")),
            *(str(row[key]) for key in ("viewers", "served")),
            *(f"{row[key]:.2f}" for key in ("median_seconds", "longest_seconds")),
        )
        for name, row in kinds.items()
    ]
    crowd = result["rows"]["at once"]
    said = (
        f"{crowd['viewers']} viewers at once: {crowd['served']} served, {crowd['waited_in_the_queue']} of them after "
        f"waiting in the queue, {crowd['refused']} refused; the first line of an answer came after at most "
        f"{crowd['longest_to_the_first_line']:.1f} s, the last picture after {crowd['longest_seconds']:.1f} s. A "
        f"picture takes about 50 ms here, and all clients have one address. Command: `{result['command']}`."
    )
    return f"{Table('', columns, tuple(rows)).markdown()}\n{said}\n"


def border_table() -> str:
    """Ctrl-C in native calls, by bench/interrupted_calls.py."""
    path = ROOT / "results" / "border.json"
    if not path.exists():
        return "Not run yet: `python -m momentum_transformer.bench.interrupted_calls --out results/border.json`.\n"
    result = json.loads(path.read_text())
    columns = ("call", "alone: s", "listening for Ctrl-C: s", "Ctrl-C to its end, median: s", "longest: s")
    rows = [
        (row["call"], *(f"{row[key]:.3f}" for key in ("seconds", "listening", "median_delay", "most_delay")))
        for row in result["rows"]
    ]
    machine = result["machine"]
    said = (
        f"One sequence of {result['tokens']:,} tokens, d = {result['width']}, on one thread of {machine['cpu']}; the "
        f"machine had other work. The library's checksum takes {1000 * result['checksum_seconds']:.1f} ms, "
        f"once a process. Command: `{result['command']}`."
    )
    return f"{Table('', columns, tuple(rows)).markdown()}\n{said}\n"


def fill(text: str, found: dict[str, str]) -> str:
    """The page with every marked block replaced."""

    def block(match: re.Match[str]) -> str:
        return f"<!-- results:{match[1]} -->\n{found[match[1]]}<!-- end -->"

    return re.sub(r"<!-- results:([\w-]+) -->\n.*?<!-- end -->", block, text, flags=re.DOTALL)


def main() -> None:
    found = tables(ROOT / "docs" / "results")
    for name in PAGES:
        page = ROOT / name
        page.write_text(fill(page.read_text(), found))


if __name__ == "__main__":
    main()
