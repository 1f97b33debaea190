"""Rewrite what README and docs take from results/: python docs/update.py

Writes docs/results/ (figures and tables of the report) and the tables between `<!-- results:NAME -->` and
`<!-- end -->` in the PAGES.
"""

import re
from pathlib import Path

from momentum_transformer.bench.documented import documented
from momentum_transformer.report.published import published

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


def tables(out: Path) -> dict[str, str]:
    """The Markdown of every table, by name; figures are written to `out` on the way."""
    return published(RESULTS, out) | documented(RESULTS, out)


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
