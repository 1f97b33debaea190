"""Rewrite what README and docs take from results/: python docs/update.py

Writes docs/results/ (figures and tables of the report) and the tables between `<!-- results:NAME -->` and
`<!-- end -->` in the PAGES.
"""

import re
import tempfile
from pathlib import Path

from momentum_transformer.bench.documented import documented
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
    found["unfinished"] = "".join(f"- `{line.removeprefix(f'{ROOT}/').replace(': ', '`: ', 1)}\n" for line in left_out)
    found["claims"] = claims_markdown(collect([RESULTS])[0], RESULTS)
    return found | documented(RESULTS, out)


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
