"""One self-contained HTML page, and the same figures and tables as files."""

import base64
import html
import json
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt

from ..experiments import REPRODUCTIONS
from ..experiments.gap import GAP
from .collect import Run, collect
from .efficiency import efficiency_sections
from .figures import svg
from .gap import gap_sections
from .own import OWN, own_sections
from .regression import regression_sections
from .section import Section
from .sections import make_sections

TIMES = ("step", "seconds", "cpu_seconds")
SPREAD = "± is half the range over seeds, from the lowest to the highest."
CSS = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; max-width: 72rem; margin: 2rem auto;
       padding: 0 1rem; }
h1 { font-size: 1.7rem; } h2 { margin-top: 3rem; border-bottom: 1px solid #ccc; padding-bottom: .2rem; }
figure { margin: 1rem 0; } figure svg { max-width: 100%; height: auto; }
table { border-collapse: collapse; margin: 1rem 0; font-size: .92rem; } caption { text-align: left; color: #555; }
td { white-space: nowrap; } th, td { padding: .25rem .7rem; border-bottom: 1px solid #ddd; text-align: right; }
th:first-child, td:first-child { text-align: left; }
thead th { border-bottom: 2px solid #333; } li { margin: .2rem 0; }
footer, .note { color: #555; font-size: .88rem; }
.gallery { display: flex; flex-wrap: wrap; gap: 1rem; } .gallery figure { margin: 0; flex: 1 1 10rem; }
.gallery img { width: 100%; max-width: 16rem; image-rendering: pixelated; }
nav a { margin-right: 1.2rem; }
"""


def write_report(paths: list[Path], out: Path) -> tuple[Path, list[str]]:
    """Write the page and its parts into `out`; returns the page and a line for each run that was left out."""
    runs, left_out = collect(paths)
    sections = [*gap_sections(runs), *regression_sections(runs), *make_sections(runs), *own_sections(runs)]
    sections += efficiency_sections(paths)
    out.mkdir(parents=True, exist_ok=True)
    drawn = []
    for section in sections:
        section.figure.savefig(out / f"{section.name}.png", dpi=150)
        drawn.append(svg(section.figure))
        (out / f"{section.name}.svg").write_text(drawn[-1])
        (out / f"{section.name}.md").write_text(markdown(section))
        for label, picture in section.gallery:
            (out / f"{section.name}-{label}.png").write_bytes(picture.read_bytes())
    plt.close("all")
    page = out / "index.html"
    page.write_text(_page(sections, drawn, runs, left_out))
    return page, left_out


def markdown(section: Section) -> str:
    """The section's tables and findings."""
    tables = section.table.markdown() + "".join(f"\n{table.title}\n\n{table.markdown()}" for table in section.more)
    note = f"\n{SPREAD}\n" if "±" in tables else ""
    return tables + note + "\n" + "".join(f"- {finding}\n" for finding in section.findings)


def _page(sections: Sequence[Section], drawn: Sequence[str], runs: Sequence[Run], left_out: Sequence[str]) -> str:
    links = "".join(f'<a href="#{section.name}">{html.escape(section.title)}</a>' for section in sections)
    body = "".join(_section(section, figure) for section, figure in zip(sections, drawn, strict=True))
    others = _without_section(runs, {section.name for section in sections})
    if not sections and not others:
        body = "<p>The runs belong to none of the studies that <code>momentum list</code> shows.</p>"
    missing = "".join(f"<li>{html.escape(line)}</li>" for line in left_out)
    note = f'<p class="note">Left out:</p><ul class="note">{missing}</ul>' if left_out else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><title>Momentum Transformer: report</title>'
        f"<style>{CSS}</style></head><body><h1>Momentum Transformer: report</h1>"
        f"<nav>{links}</nav>{body}{others}{note}"
        f"<footer><h2>Where the numbers come from</h2>{_sources(runs)}</footer></body></html>\n"
    )


def _without_section(runs: Sequence[Run], names: set[str]) -> str:
    """Runs that no study draws, a line each: what they had reached at their last step."""
    drawn = {name for study in REPRODUCTIONS.values() if study is not GAP for name, _ in study.lines} | {*OWN}
    gap = {(experiment, variant.model, tuple(sorted(variant.settings))) for experiment, variant in GAP.lines}
    items = ""
    for run in runs:
        request = run.request
        settings = sorted(text for text in request.settings if not text.startswith("train.learning_rate="))
        line = request.experiment, request.model, tuple(settings)
        if not (request.experiment in drawn or (f"gap-{request.scale}" in names and line in gap)):
            words = (request.experiment, request.model, request.scale, f"seed {request.seed}", *request.settings)
            scores = (f"{name} {run.final(name):.4f}" for name in run.validation if name not in TIMES)
            items += f"<li>{html.escape(' '.join(words))}: {html.escape(', '.join(scores))}</li>"
    return f"<h2>Runs without a section</h2><p>At their last step.</p><ul>{items}</ul>" if items else ""


def _section(section: Section, figure: str) -> str:
    findings = "".join(f"<li>{html.escape(finding)}</li>" for finding in section.findings)
    title = html.escape(section.title)
    tables = "".join(table.html() for table in (section.table, *section.more))
    tables += f'<p class="note">{SPREAD}</p>' if "±" in tables else ""
    return (
        f'<section id="{section.name}"><h2>{title}</h2><p>{html.escape(section.intro)}</p>'
        f'<figure aria-label="{title}">{figure}</figure>{tables}'
        f"{_gallery(section)}{f'<h3>What held</h3><ul>{findings}</ul>' if findings else ''}</section>"
    )


def _gallery(section: Section) -> str:
    """Samples side by side, inside the page."""
    pictures = "".join(
        f'<figure><img alt="pictures drawn by {html.escape(label)}" src="data:image/png;base64,'
        f'{base64.b64encode(picture.read_bytes()).decode()}"><figcaption>{html.escape(label)}</figcaption></figure>'
        for label, picture in section.gallery
    )
    return f'<h3>Samples</h3><div class="gallery">{pictures}</div>' if pictures else ""


def _sources(runs: Sequence[Run]) -> str:
    """Each distinct combination of code, machine and versions, and how many runs it made."""
    counts: dict[str, int] = {}
    for run in runs:
        kept = {
            key: run.provenance.get(key) for key in ("commit", "dirty", "cpu", "cores", "threads", "gpu", "versions")
        }
        text = json.dumps(kept, ensure_ascii=False)
        counts[text] = counts.get(text, 0) + 1
    items = "".join(f"<li>{count} runs: <code>{html.escape(text)}</code></li>" for text, count in counts.items())
    return f"<ul>{items}</ul>"
