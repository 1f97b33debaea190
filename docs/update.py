"""Rewrite what README and docs take from results/: python docs/update.py

Writes docs/results/ (figures and tables of the report) and the tables between `<!-- results:NAME -->` and
`<!-- end -->` in README.md, docs/experiments.md and docs/performance.md.
"""

import json
import re
import tempfile
from pathlib import Path

from momentum_transformer.bench import suite
from momentum_transformer.bench.plot import draw
from momentum_transformer.bench.tables import markdown
from momentum_transformer.report.page import write_report

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", "docs/experiments.md", "docs/performance.md")


def tables(out: Path) -> dict[str, str]:
    """The Markdown of every table, by name; figures are written to `out` on the way."""
    with tempfile.TemporaryDirectory() as scratch:
        write_report([ROOT / "results"], Path(scratch))
        out.mkdir(parents=True, exist_ok=True)
        for figure in sorted(Path(scratch).glob("*.svg")):
            (out / figure.name).write_text(figure.read_text())
        found = {path.stem: path.read_text() for path in sorted(Path(scratch).glob("*.md"))}
    return found | {"attention": attention_table(), "bench": bench_tables(out)}


def attention_table() -> str:
    """Time, memory and decoding figures of benchmarks/attention.py."""
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
