"""What README and docs take from runs: figures of the report as files, its tables as Markdown."""

import tempfile
from pathlib import Path

from .claims import claims_markdown
from .collect import collect
from .page import write_report

# tables of studies that are under way, and the commands that make their runs
STUDIED = dict.fromkeys(
    ("gap-small", "gap-apart-small", "gap-state-small", "regression-small"), "momentum reproduce gap"
) | {"text-small": "momentum reproduce text --seeds 3"}


def published(results: Path, figures: Path) -> dict[str, str]:
    """The Markdown of every table of the report, by name; figures are written to `figures` on the way."""
    with tempfile.TemporaryDirectory() as scratch:
        _, left_out = write_report([results], Path(scratch))
        figures.mkdir(parents=True, exist_ok=True)
        for figure in sorted(Path(scratch).glob("*.svg")):
            (figures / figure.name).write_text(figure.read_text(encoding="utf-8"), encoding="utf-8")
        found = {name: f"Not run yet: `{command}`.\n" for name, command in STUDIED.items()}
        found |= {path.stem: path.read_text(encoding="utf-8") for path in sorted(Path(scratch).glob("*.md"))}
    found["unfinished"] = unfinished(left_out, results.parent)
    found["claims"] = claims_markdown(collect([results])[0], results)
    return found


def unfinished(left_out: list[str], root: Path) -> str:
    """A list of the runs that a report has left out, `place: reason` each, with places below `root`."""
    lines = (line.removeprefix(f"{root}/").replace(": ", "`: ", 1) for line in left_out)
    return "".join(f"- `{line}\n" for line in lines)
