"""Rewrite what README and docs take from results/: python docs/update.py

Writes docs/results/ (figures and tables of the report) and the tables between `<!-- results:NAME -->` and
`<!-- end -->` in the PAGES.
"""

import json
import re
import tempfile
from pathlib import Path

from momentum_transformer.bench import contexts, limits, suite
from momentum_transformer.bench.attention_tables import markdown
from momentum_transformer.bench.family_tables import markdown as family_markdown
from momentum_transformer.bench.kernel_tables import (
    accuracy_table,
    attention_table,
    blocks_table,
    profile_table,
    steps_table,
    training_table,
    versions_table,
)
from momentum_transformer.bench.plot import draw
from momentum_transformer.bench.robustness_tables import border_table, faults_table, fuzz_table, load_table
from momentum_transformer.bench.speed_tables import generation_table, scaling_tables, translation_table
from momentum_transformer.bench.transformers_tables import headline as transformers_headline
from momentum_transformer.bench.transformers_tables import markdown as transformers_markdown
from momentum_transformer.report.claims import claims_markdown
from momentum_transformer.report.collect import collect
from momentum_transformer.report.page import write_report

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
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
STUDIED = ("gap-small", "gap-apart-small", "gap-state-small", "regression-small")  # parts of a study that is under way


def tables(out: Path) -> dict[str, str]:
    """The Markdown of every table, by name; figures are written to `out` on the way."""
    with tempfile.TemporaryDirectory() as scratch:
        _, left_out = write_report([RESULTS], Path(scratch))
        out.mkdir(parents=True, exist_ok=True)
        for figure in sorted(Path(scratch).glob("*.svg")):
            (out / figure.name).write_text(figure.read_text())
        found = dict.fromkeys(STUDIED, "Not run yet: `momentum reproduce gap`.\n")
        found["text-small"] = "Not run yet: `momentum reproduce text --seeds 3`.\n"
        found |= {path.stem: path.read_text() for path in sorted(Path(scratch).glob("*.md"))}
    others = {
        "unfinished": "".join(f"- `{line.removeprefix(f'{ROOT}/').replace(': ', '`: ', 1)}\n" for line in left_out),
        "claims": claims_markdown(collect([RESULTS])[0], RESULTS),
        "accuracy": accuracy_table(RESULTS),
        "training": training_table(RESULTS),
        "steps": steps_table(RESULTS),
        "family": family_tables(),
        "versions": versions_table(RESULTS),
        "generation": generation_table(RESULTS, "generation"),
        "decoding": generation_table(RESULTS, "decoding"),
        "contexts": contexts_table(out),
        "translation": translation_table(RESULTS),
        "faults": faults_table(RESULTS),
        **scaling_tables(RESULTS),
        **transformers_tables(),
    }
    kernels = {"bench": bench_tables(out), "limits": limits_tables(), "profile": profile_table(RESULTS)}
    kernels |= {"blocks": blocks_table(RESULTS)}
    kernels |= {"fuzz": fuzz_table(RESULTS), "load": load_table(RESULTS), "border": border_table(RESULTS)}
    return found | others | kernels | {"attention": attention_table(RESULTS)}


def bench_tables(out: Path) -> str:
    """Targets and timings of `momentum bench`; the picture goes to `out`."""
    path = RESULTS / "bench.json"
    if not path.exists():
        return "Nothing has been measured yet: `make bench`.\n"
    record = suite.read(path)
    (out / "bench.svg").write_text(draw(record))
    return markdown(record)


def transformers_tables() -> dict[str, str]:
    """Transformers' mixers and models, alone and on our kernels, by `momentum bench --transformers`."""
    path = RESULTS / "transformers.json"
    if not path.exists():
        missing = "Not measured yet: `momentum bench --transformers --out results/transformers.json`.\n"
        return {"transformers": missing, "transformers-headline": missing}
    record = json.loads(path.read_text())
    return {"transformers": transformers_markdown(record), "transformers-headline": transformers_headline(record)}


def limits_tables() -> str:
    """What bounds the native kernels, by bench/limits.py."""
    path = RESULTS / "limits.json"
    return limits.markdown(json.loads(path.read_text())) if path.exists() else "Not measured yet: `make bench`.\n"


def family_tables() -> str:
    """Targets, bounds and timings of `momentum bench --family`; records of other machines have a suffix."""
    path = RESULTS / "family.json"
    if not path.exists():
        return "Not measured yet: `make bench`.\n"
    elsewhere = (suite.read(other, "family") for other in sorted(RESULTS.glob("family-*.json")))
    return family_markdown(suite.read(path, "family"), *elsewhere)


def contexts_table(out: Path) -> str:
    """Decoding against the length of the context, by bench/decoding_speed.py; the picture goes to `out`."""
    path = RESULTS / "contexts.json"
    if not path.exists():
        return "Not measured yet: `python -m momentum_transformer.bench.decoding_speed --out results/contexts.json`.\n"
    record = json.loads(path.read_text())
    (out / "contexts.svg").write_text(contexts.draw(record))
    return contexts.markdown(record)


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
