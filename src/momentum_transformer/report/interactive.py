"""Figures inside the page: colours that follow light and dark, and points that say their values."""

import colorsys
import html
import re
from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedFormatter, FuncFormatter

MOST_POINTS = 60  # of a line that say their values; of a longer one, so many that are evenly spread
POINTS_PER_INCH = 72  # the unit of the SVG
ATTRIBUTE = re.compile(r'fill="(#[0-9a-f]{6})"', re.IGNORECASE)  # what hatched bars are filled with
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
    styled = ATTRIBUTE.sub(r'style="fill: \1"', drawn)  # variables stand in styles only
    themed = COLOUR.sub(lambda found: f"var(--c-{found.group()[1:].lower()})", styled)
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
        return "var(--paper)"  # the ground of a figure
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
                says = html.escape(_says(axis, label, x, y))
                where = f'cx="{across:.1f}" cy="{height - up:.1f}" r="5"'
                yield f'<circle class="hit" {where} data-says="{says}" tabindex="-1"/>'
    for cell in axis.patches:  # those of bars have no label of their own
        if isinstance(cell, Rectangle) and _label(cell):
            (left, bottom), (right, top) = axis.transData.transform(cell.get_bbox().corners()[[0, 3]]) * scale
            where = f'x="{min(left, right):.1f}" y="{height - max(bottom, top):.1f}"'
            size = f'width="{abs(right - left):.1f}" height="{abs(top - bottom):.1f}"'
            says = html.escape(str(cell.get_label()))
            yield f'<rect class="hit" {where} {size} data-says="{says}" tabindex="-1"/>'


def _says(axis: Axes, label: str, x: float, y: float) -> str:
    """Where rows have names, the row and how far it reaches; otherwise the label, the place across and the value."""
    row, column = _tick_words(axis.yaxis, y), _tick_words(axis.xaxis, x)
    if row is not None:
        return f"{row}: {label}{_labelled(axis.get_xlabel(), f'{x:,.4g}')}"
    value = _labelled(axis.get_ylabel(), f"{y:.4g}")
    if np.isnan(x):  # the same everywhere
        return f"{label}{value}"
    across = f"{x:,.6g}" if column is None else column
    named = re.search("[^0-9., -]", across) is not None
    return f"{label}{across if named else _labelled(axis.get_xlabel(), across)}, {value}"


def _tick_words(axis: Axis, value: float) -> str | None:
    """What is written at the nearest tick, where ticks were given words of their own."""
    formatter = axis.get_major_formatter()
    if np.isnan(value) or not isinstance(formatter, FixedFormatter | FuncFormatter):
        return None
    ticks = np.asarray(axis.get_majorticklocs())
    nearest = int(np.abs(ticks - value).argmin())
    return " ".join(formatter(ticks[nearest], nearest).split())


def _labelled(label: str, value: str) -> str:
    return f"{label} {value}" if label else value


def _lines(axis: Axes) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Label, values and places of every line's points; of a horizontal reference line its value only."""
    for line in axis.lines:
        values = np.column_stack([np.asarray(part, dtype=float) for part in line.get_data()])
        if _label(line) == "" and line.get_marker() in ("", "None", None):
            continue
        places = line.get_transform().transform(values)
        if line.get_transform() == axis.get_yaxis_transform(which="grid"):
            values[:, 0] = np.nan
        few = slice(None, None, -(-len(values) // MOST_POINTS) or 1)
        yield _label(line), values[few], places[few]


def _bars(axis: Axes) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Label, values and ends of bars that lie or stand."""
    for bars in axis.containers:
        if isinstance(bars, BarContainer):
            lying = bars.orientation == "horizontal"
            share = np.array((1.0, 0.5) if lying else (0.5, 1.0))
            values = np.array([bar.get_xy() + share * (bar.get_width(), bar.get_height()) for bar in bars.patches])
            yield _label(bars), values, axis.transData.transform(values)


def _label(artist: Line2D | BarContainer | Rectangle) -> str:
    label = str(artist.get_label())
    return "" if label.startswith("_") else f"{label}: "
