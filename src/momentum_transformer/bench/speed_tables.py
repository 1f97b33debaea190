"""Measurements of whole models as tables of the docs: many processes, pictures and translations per second."""

from typing import Any

from .targets import Record

MODELLED = ("momentum", "gated-delta")  # of the cost model of scaling
LATENCY, BANDWIDTH = 20e-6, 12.5e9  # seconds a message, bytes a second: assumptions of that model


def scaling_rows(result: Record) -> dict[tuple[str, int], dict[str, Any]]:
    return {(row["model"], row["processes"]): row for row in result["rows"]}


def scaling_table(result: Record) -> str:
    """One sequence over one process and two, model by model, by bench/sequence_scaling.py."""
    rows = scaling_rows(result)
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


def scaling_model(result: Record) -> str:
    """More processes than there are: work by the token, and exchanges at an assumed latency and bandwidth."""
    depth, rows = result["sizes"]["depth"], scaling_rows(result)
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


def generation_table(result: Record) -> str:
    """Images per second, by bench/picture_speed.py."""
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


def translation_table(result: Record) -> str:
    """Tokens per second of the translators, by bench/translation_speed.py, and whether they meet what is asked."""
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
