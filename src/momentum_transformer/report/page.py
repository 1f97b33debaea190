"""One self-contained HTML page, and the same figures and tables as files."""

import base64
import html
import io
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from ..bounded import MEGABYTE, read_bounded
from ..durable import make_folder, replace_file
from ..training.run_directory import RunError
from .collect import Run, collect
from .contents import make_sections
from .efficiency import efficiency_sections
from .entries import key
from .figures import svg
from .interactive import SCRIPT, interactive, palette
from .other_runs_section import other_sections
from .own_data_section import OWN, own_sections
from .section import SETTLED, UNSETTLED, Section
from .tables import Table

VERSIONS = ("momentum-transformer", "torch", "numpy")
MOST_CHARACTERS = 1_000  # of a text that is shown
MOST_PICTURE = 64 * MEGABYTE
SPREAD = "± is half the range over seeds, from the lowest to the highest."
CSS = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1a1a1a; --faint: #555560; --line: #d8d8e0; --tint: #f5f5f9;
        --link: #3730a3; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #14141b; --ink: #ececf4; --faint: #a9a9bd; --line: #3a3a47; --tint: #1e1e28; --link: #a5b4fc; }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 72rem;
       margin: 2rem auto; padding: 0 1rem; overflow-wrap: break-word; }
a { color: var(--link); }
h1 { font-size: 1.7rem; } h2 { margin-top: 3rem; border-bottom: 1px solid var(--line); padding-bottom: .2rem; }
figure { margin: 1rem 0; }
.scroll { overflow-x: auto; container-type: inline-size; background:
  linear-gradient(to right, var(--paper) 40%, transparent) 0 0 / 2rem 100% no-repeat local,
  linear-gradient(to left, var(--paper) 40%, transparent) 100% 0 / 2rem 100% no-repeat local,
  linear-gradient(to right, var(--line), transparent) 0 0 / .7rem 100% no-repeat scroll,
  linear-gradient(to left, var(--line), transparent) 100% 0 / .7rem 100% no-repeat scroll; }
.scroll::-webkit-scrollbar { height: .4rem; }
.scroll::-webkit-scrollbar-thumb { background: var(--faint); border-radius: .2rem; }
section > figure > svg { display: block; max-width: 100%; min-width: min(var(--own), 70rem); height: auto;
  fill: var(--ink); }
svg.plain { background: #ffffff; fill: #000000; }
.hit { fill: var(--ink); fill-opacity: 0; stroke: none; }
.hit:hover, .hit:focus { fill-opacity: .35; outline: none; }
#tip { position: fixed; inset: 0 auto auto 0; z-index: 1; max-width: min(22rem, 90vw); padding: .3rem .6rem;
       border-radius: .4rem; font-size: .88rem; color: var(--paper); background: var(--ink); pointer-events: none; }
table { border-collapse: collapse; margin: 1rem 0; font-size: .92rem; }
caption { text-align: left; color: var(--faint); }
caption span { display: block; position: sticky; left: 0; max-width: 100cqw; }
td { white-space: nowrap; } th, td { padding: .25rem .7rem; border-bottom: 1px solid var(--line); text-align: right; }
.words { text-align: left; }
thead th { border-bottom: 2px solid var(--faint); } li { margin: .2rem 0; }
footer, .note { color: var(--faint); font-size: .88rem; }
.headline { margin: 1rem 0; padding: .8rem 1.2rem; border-radius: .6rem; background: var(--tint); }
.headline p { margin: .3rem 0; }
.gallery { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(10rem, 1fr)); }
.gallery figure { margin: 0; min-width: 0; }
.gallery img { width: 100%; max-width: 16rem; image-rendering: pixelated; }
.texts { grid-template-columns: repeat(auto-fill, minmax(min(20rem, 100%), 1fr)); }
.texts pre { margin: 0; padding: .6rem .8rem; border-radius: .4rem; font-size: .9rem;
  white-space: pre-wrap; overflow-wrap: anywhere; background: var(--tint); max-height: 20rem; overflow: auto; }
nav { display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; }
@media (max-width: 40rem) { body { margin: 1rem auto; } h1 { font-size: 1.35rem; } h2 { font-size: 1.15rem; }
  th, td { padding: .25rem .45rem; } td:first-child { white-space: normal; min-width: 8rem; } }
"""


def write_report(paths: list[Path], out: Path) -> tuple[Path, list[str]]:
    """Write the page and its parts into `out`; returns the page and a line for each run that was left out."""
    runs, left_out = collect(paths)
    sections = [*make_sections(runs), *own_sections(runs), *efficiency_sections(paths)]
    shown = frozenset().union(*(section.shows for section in sections))
    sections += other_sections(
        [one for one in runs if key(one.request) not in shown and one.request.experiment not in OWN]
    )
    drawn = [svg(section.figure) for section in sections]
    drawings = [interactive(section.figure, drawing) for section, drawing in zip(sections, drawn, strict=True)]
    page = out / "index.html"
    try:
        make_folder(out)
        for section, drawing in zip(sections, drawn, strict=True):
            _write(out / f"{section.name}.png", _png(section))
            _write(out / f"{section.name}.svg", drawing.encode())
            _write(out / f"{section.name}.md", markdown(section).encode())
            for label, picture in section.gallery:
                _write(out / f"{section.name}-{label}.png", read_bounded(picture, MOST_PICTURE))
        _write(page, _page(sections, drawings, runs, left_out).encode())
    except OSError as error:
        raise RunError(f"the report cannot be written: {error}; name another place with --out") from None
    plt.close("all")
    return page, left_out


def _write(path: Path, content: bytes) -> None:
    replace_file(path, lambda temporary: temporary.write_bytes(content))


def _png(section: Section) -> bytes:
    picture = io.BytesIO()
    section.figure.savefig(picture, format="png", dpi=150)
    return picture.getvalue()


def markdown(section: Section) -> str:
    """The section's tables and findings."""
    tables = section.table.markdown() + "".join(f"\n{table.title}\n\n{table.markdown()}" for table in section.more)
    note = f"\n{SPREAD}\n" if "±" in tables else ""
    return tables + note + "\n" + "".join(f"- {finding}\n" for finding in section.findings)


def _page(sections: Sequence[Section], drawn: Sequence[str], runs: Sequence[Run], left_out: Sequence[str]) -> str:
    links = "".join(f'<a href="#{section.name}">{html.escape(section.title)}</a>' for section in sections)
    body = "".join(_section(section, figure) for section, figure in zip(sections, drawn, strict=True))
    missing = "".join(f"<li>{html.escape(line)}</li>" for line in left_out)
    note = f'<p class="note">Left out:</p><ul class="note">{missing}</ul>' if left_out else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><title>Momentum Transformer: report</title>'
        f"<style>{CSS}{palette(drawn)}</style></head><body><h1>Momentum Transformer: report</h1>"
        f"{_headline(sections)}<nav>{links}</nav>{body}{note}"
        f"<footer><h2>Where the numbers come from</h2>{_sources(runs)}</footer>"
        f'<div id="tip" role="status" hidden></div><script>{SCRIPT}</script></body></html>\n'
    )


def _headline(sections: Sequence[Section]) -> str:
    """The verdicts on which all seeds agree; nothing where nothing is compared."""
    ending = f": {SETTLED}."
    agreed = "".join(
        f'<li>{html.escape(finding.removesuffix(ending))} (<a href="#{section.name}">'
        f"{html.escape(section.title)}</a>).</li>"
        for section in sections
        for finding in section.findings
        if finding.endswith(ending)
    )
    doubtful = tuple(f": {verdict}." for verdict in UNSETTLED)
    if not agreed and not any(finding.endswith(doubtful) for section in sections for finding in section.findings):
        return ""
    if not agreed:
        return '<div class="headline"><p>No comparison here comes out the same way in every pair of seeds.</p></div>'
    return f'<div class="headline"><p><b>True in every pair of seeds:</b></p><ul>{agreed}</ul></div>'


def _section(section: Section, figure: str) -> str:
    findings = "".join(f"<li>{html.escape(finding)}</li>" for finding in section.findings)
    title = html.escape(section.title)
    tables = "".join(f'<div class="scroll">{table.html()}</div>' for table in (section.table, *section.more))
    tables += f'<p class="note">{SPREAD}</p>' if "±" in tables else ""
    own = f"{section.figure.get_figwidth():.3g}in"  # on a narrow page it scrolls, and its words stay legible
    held = f"<h3>What held</h3><ul>{findings}</ul>" if findings else ""
    return (
        f'<section id="{section.name}"><h2>{title}</h2><p>{html.escape(section.intro)}</p>'
        f'<figure class="scroll" style="--own: {own}" aria-label="{title}">{figure}</figure>{tables}'
        f"{_gallery(section)}{_texts(section)}{held}</section>"
    )


def _gallery(section: Section) -> str:
    """Samples side by side, inside the page."""
    pictures = "".join(
        f'<figure><img alt="pictures drawn by {html.escape(label)}" src="data:image/png;base64,'
        f'{base64.b64encode(read_bounded(picture, MOST_PICTURE)).decode()}">'
        f"<figcaption>{html.escape(label)}</figcaption></figure>"
        for label, picture in section.gallery
    )
    return f'<h3>Samples</h3><div class="gallery">{pictures}</div>' if pictures else ""


def _texts(section: Section) -> str:
    """What models wrote at their last evaluation, side by side."""
    texts = "".join(
        f"<figure><pre>{html.escape(text[:MOST_CHARACTERS])}</pre><figcaption>{html.escape(label)}</figcaption></figure>"
        for label, text in section.texts
    )
    return f'<h3>Texts</h3><div class="gallery texts">{texts}</div>' if texts else ""


def _sources(runs: Sequence[Run]) -> str:
    """Each distinct combination of code, machine and versions, and how many runs it made."""
    counts = Counter(_source(run.provenance) for run in runs)
    rows = tuple((commit, str(count), *others) for (commit, *others), count in counts.items())
    columns = ("commit", "runs", "processor", "cores", "threads", "GPU", *VERSIONS)
    return f'<div class="scroll">{Table("Code, machine and versions", columns, rows).html()}</div>'


def _source(provenance: dict[str, Any]) -> tuple[str, ...]:
    commit = str(provenance.get("commit") or "not known")[:12]
    versions = provenance.get("versions")
    known = versions if isinstance(versions, dict) else {}
    machine = (provenance.get(name) for name in ("cpu", "cores", "threads", "gpu"))
    shown = (str(value or "–") for value in (*machine, *(known.get(name) for name in VERSIONS)))
    return (f"{commit} with changes" if provenance.get("dirty") else commit, *shown)
