"""Figures inside the page: colours that follow light and dark, and points that say their values."""

import colorsys
import html
import re
from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedFormatter

MOST_POINTS = 60  # of a line that say their values; of a longer one, so many that are evenly spread
POINTS_PER_INCH = 72  # the unit of the SVG
COLOUR = re.compile(r"(?<=: )#[0-9a-f]{6}\b", re.IGNORECASE)
GREY = 0.15  # of saturation and below
LIGHT = 0.64  # lightness of a colour on a dark page, at least

# The pointer, a finger or the keyboard's focus on a point shows what it says.
SCRIPT = """
const tip = document.getElementById("tip");
const show = (event) => {
  const hit = event.target.closest?.(".hit");
  tip.hidden = !hit;
  if (!hit) return;
  tip.textContent = hit.dataset.says;
  const box = hit.getBoundingClientRect();
  const [width, height] = [tip.offsetWidth, tip.offsetHeight];
  const left = Math.min(innerWidth - width - 8, Math.max(8, box.x + box.width / 2 - width / 2));
  const top = box.y > height + 12 ? box.y - height - 6 : box.bottom + 6;
  tip.style.transform = `translate(${left}px, ${top}px)`;
};
for (const kind of ["pointerover", "pointerdown", "focusin"]) document.addEventListener(kind, show);
document.addEventListener("scroll", () => { tip.hidden = true; }, true);
"""


def interactive(figure: Figure, drawn: str) -> str:
    """The figure, which was drawn as this SVG, for a page that has `SCRIPT` and the colours of `palette`."""
    if "<image" in drawn:  # a picture has its own colours, and what is written on it must fit them
        return drawn.replace("<svg", '<svg class="plain"', 1)
    themed = COLOUR.sub(lambda found: f"var(--c-{found.group()[1:].lower()})", drawn)
    hits = "".join(hit for axis in figure.axes if axis.get_visible() for hit in _hits(axis, figure))
    return themed.replace("</svg>", f'<g class="hits">{hits}</g></svg>')


def palette(drawn: Sequence[str]) -> str:
    """CSS for the colours of figures: their own on a light page, lighter ones on a dark page."""
    found = sorted({name for text in drawn for name in re.findall(r"var\(--c-([0-9a-f]{6})\)", text)})
    light, dark = (
        "".join(f"--c-{name}: {value};" for name, value in ((name, change(name)) for name in found))
        for change in (lambda name: f"#{name}", on_dark)
    )
    return f":root {{ {light} }} @media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"


def on_dark(colour: str) -> str:
    """A colour for a dark page: greys are turned around, others get light enough."""
    if colour == "ffffff":
        return "transparent"  # the ground of a figure
    hue, lightness, saturation = colorsys.rgb_to_hls(*(int(colour[i : i + 2], 16) / 255 for i in (0, 2, 4)))
    changed = 0.93 - 0.8 * lightness if saturation <= GREY else max(lightness, LIGHT)
    parts = (round(255 * part) for part in colorsys.hls_to_rgb(hue, changed, saturation))
    return "#" + "".join(f"{part:02x}" for part in parts)


def _hits(axis: Axes, figure: Figure) -> Iterator[str]:
    scale = POINTS_PER_INCH / figure.dpi
    height = figure.get_figheight() * POINTS_PER_INCH
    for label, values, places in [*_lines(axis), *_bars(axis)]:
        inside = axis.bbox.padded(1)
        for (x, y), place in zip(values, places, strict=True):
            if np.isfinite(place).all() and inside.contains(*place):
                across, up = place * scale
                says = html.escape(f"{label}{_named(axis, x)}, {_labelled(axis.get_ylabel(), f'{y:.4g}')}")
                where = f'cx="{across:.1f}" cy="{height - up:.1f}" r="5"'
                yield f'<circle class="hit" {where} data-says="{says}" tabindex="-1"/>'
    for cell in axis.patches:  # those of bars have no label of their own
        if isinstance(cell, Rectangle) and _label(cell):
            (left, bottom), (right, top) = axis.transData.transform(cell.get_bbox().corners()[[0, 3]]) * scale
            where = f'x="{min(left, right):.1f}" y="{height - max(bottom, top):.1f}"'
            size = f'width="{abs(right - left):.1f}" height="{abs(top - bottom):.1f}"'
            says = html.escape(str(cell.get_label()))
            yield f'<rect class="hit" {where} {size} data-says="{says}" tabindex="-1"/>'


def _lines(axis: Axes) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Label, values and places of every line's points."""
    for line in axis.lines:
        values = np.column_stack([np.asarray(part, dtype=float) for part in line.get_data()])
        if len(values) < 2 and _label(line) == "" and line.get_marker() in ("", "None", None):
            continue
        values = values[:: -(-len(values) // MOST_POINTS) or 1]
        yield _label(line), values, line.get_transform().transform(values)


def _bars(axis: Axes) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    for bars in axis.containers:
        if isinstance(bars, BarContainer):
            tops = [(bar.get_x() + bar.get_width() / 2, bar.get_y() + bar.get_height()) for bar in bars.patches]
            values = np.array(tops, dtype=float)
            yield _label(bars), values, axis.transData.transform(values)


def _label(artist: Line2D | BarContainer | Rectangle) -> str:
    label = str(artist.get_label())
    return "" if label.startswith("_") else f"{label}: "


def _named(axis: Axes, x: float) -> str:
    """A place across: its tick's words where ticks have words, otherwise its number and unit."""
    formatter = axis.xaxis.get_major_formatter()
    if isinstance(formatter, FixedFormatter):
        ticks = np.asarray(axis.get_xticks())
        nearest = int(np.abs(ticks - x).argmin())
        return " ".join(formatter.seq[nearest].split())
    return _labelled(axis.get_xlabel(), f"{x:,.6g}")


def _labelled(label: str, value: str) -> str:
    return f"{label} {value}" if label else value
