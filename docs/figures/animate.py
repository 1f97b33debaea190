"""Draw the figures that move, of docs/idea.md: python docs/figures/animate.py

A figure is one SVG file without scripts: its frames lie on top of each other and are shown in turn. It follows the
reader's choice of light or dark and of less motion; the site puts it into the page and adds a slider.
"""

from pathlib import Path

import torch

from momentum_transformer import recurrent_attention
from momentum_transformer.ops.geometric import geometric_sums

HERE = Path(__file__).parent
WIDTH = 420
STYLE = """
--ink: #1f2328; --dim: #59636e; --rule: #d1d9e0; --one: #0072b2; --two: #c2410c; --three: #047857;
@media (prefers-color-scheme: dark) {
  --ink: #e6edf3; --dim: #9aa4af; --rule: #3d444d; --one: #58a6ff; --two: #ff9b5e; --three: #4ad295 }
text { font: 13px system-ui, sans-serif; fill: var(--ink) }
.small { font-size: 11px } .bold { font-weight: 600 } .end { text-anchor: end } .middle { text-anchor: middle }
.dim { fill: var(--dim) } .one { fill: var(--one) } .two { fill: var(--two) } .three { fill: var(--three) }
path { fill: none; stroke-width: 2 } path.two { fill: none; stroke: var(--two) }
.rule { stroke: var(--rule); stroke-width: 1 } .goal { stroke: var(--ink); stroke-dasharray: 4 2 }
"""


def text(x: float, y: float, words: str, names: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{names}">{words}</text>'


def bar(x: float, y: float, width: float, height: float, names: str) -> str:
    """A bar from y upwards, or downwards where its height is negative."""
    size = f'width="{width:g}" height="{abs(height):.1f}"'
    return f'<rect x="{x:.1f}" y="{min(y, y - height):.1f}" {size} class="{names}"/>'


def line(x1: float, y1: float, x2: float, y2: float, names: str) -> str:
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" class="{names}"/>'


def save(name: str, title: str, height: int, still: list[str], frames: list[list[str]], seconds: float) -> None:
    """Write a figure: what stands still, and the frames, each shown for so many seconds."""
    whole = seconds * len(frames)
    rules = [
        f".frame {{ visibility: hidden; animation: {name} {whole:g}s step-end infinite }}",
        "@media (prefers-reduced-motion: reduce) {",
        "  .frame { animation: none } .frame:last-of-type { visibility: visible } }",
    ]
    shown = f"@keyframes {name} {{ 0% {{ visibility: visible }} {100 / len(frames):.4f}% {{ visibility: hidden }} }}"
    groups = [
        f'<g class="frame" style="animation-delay:{number * seconds - whole:.2f}s">{"".join(parts)}</g>'
        for number, parts in enumerate(frames)
    ]
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" id="{name}" viewBox="0 0 {WIDTH} {height}" role="img"'
        f' data-seconds="{seconds:g}"><title>{title}</title>',
        f"<style>{shown}\n#{name} {{{STYLE}" + "\n".join(rules) + "\n}</style>",
        *still,
        *groups,
        "</svg>\n",
    ]
    (HERE / f"moving-{name}.svg").write_text("\n".join(lines))


def weights() -> None:
    """What a key weighs against its distance, as β grows: linear attention, retention and momentum attention."""
    left, base, tall, keys = 46, 210, 140, 16
    step = (WIDTH - left - 10) / keys
    still = [
        text(10, 20, "Weight of a key, by how many tokens ago it came", "bold"),
        line(left, base, WIDTH - 10, base, "rule"),
        line(left, base - tall, WIDTH - 10, base - tall, "rule"),
        text(left - 8, base + 4, "0", "small dim end"),
        text(left - 8, base - tall + 4, "1", "small dim end"),
        *[text(left + (r + 0.5) * step, base + 16, str(r), "small dim middle") for r in range(0, keys, 5)],
        text(WIDTH - 10, base + 32, "tokens ago", "small dim end"),
    ]
    frames = []
    for beta in [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95]:
        sums = geometric_sums(torch.tensor([beta], dtype=torch.float64), keys)[0, 1:].tolist()
        momentum = [(1 - beta) * entry for entry in sums]
        points = [f"{left + (r + 0.5) * step:.1f} {base - tall * beta**r:.1f}" for r in range(keys)]
        frames.append(
            [
                *[bar(left + r * step + 3, base, step - 6, tall * w, "one") for r, w in enumerate(momentum)],
                f'<path d="M{"L".join(points)}" class="two"/>',
                text(10, 46, f"β = {beta:g}", "bold"),
                text(86, 46, "bars: momentum, γ = 1 − β", "one"),
                text(284, 46, "line: retention, βʳ", "two"),
            ]
        )
    save("weights", "Weights of keys against their distance, for growing β", 250, still, frames, 1.0)


def state() -> None:
    """u, m and s of one entry of the state while twelve tokens arrive."""
    beta, gamma = 0.6, 0.4
    updates = [2.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    rows = {"u": (100, 17.0), "m": (180, 24.0), "s": (286, 18.0)}
    left = 40
    step = (WIDTH - left - 10) / len(updates)
    still = [
        text(10, 20, "One entry of the state, token by token", "bold"),
        *[line(left, base, WIDTH - 10, base, "rule") for base, _ in rows.values()],
        text(10, 88, "u", "bold"),
        text(10, 168, "m", "two bold"),
        text(10, 274, "s", "one bold"),
        text(left, 60, "what each token adds", "small dim"),
        text(left, 126, "momentum: a fading sum", "small dim"),
        text(left, 206, "state: takes a step γm at every token; dashes: linear attention", "small dim"),
    ]
    frames, m, s, total = [], 0.0, 0.0, 0.0
    drawn: list[str] = []
    for number, u in enumerate(updates):
        before = (m, s)
        m = beta * m + u
        s = s + gamma * m
        total += u
        x = left + number * step
        for name, value, names in (("u", u, "three"), ("m", m, "two"), ("s", s, "one")):
            base, unit = rows[name]
            drawn.append(bar(x + 4, base, step - 8, unit * value, names))
        base, unit = rows["s"]
        drawn.append(line(x + 1, base - unit * total, x + step - 1, base - unit * total, "goal"))
        frames.append(
            [
                *drawn,
                text(x + step / 2, 302, str(number + 1), "small middle"),
                text(10, 324, f"m = {beta:g} · {before[0]:.2f} + {u:g} = {m:.2f}", "two"),
                text(200, 324, f"s = {before[1]:.2f} + {gamma:g} · {m:.2f} = {s:.2f}", "one"),
            ]
        )
    save("state", "u, m and s of momentum attention while twelve tokens arrive", 336, still, frames, 1.2)


PAIRS = [("A", 3.0), ("B", 2.0), ("C", 4.0), ("A", 1.0), ("B", 4.0), ("A", 2.0)]
RULES = {
    "linear": ("linear: adds", {}, "one"),
    "retention": ("retention: fades", {"alpha": 0.7}, "two"),
    "delta": ("delta: replaces", {"delta": 1.0}, "three"),
}


def recalled(options: dict[str, float]) -> torch.Tensor:
    """What each of the three keys recalls after each token: (tokens, keys)."""
    names = "ABC"
    keys = torch.eye(3, dtype=torch.float64)[[names.index(key) for key, _ in PAIRS]]
    values = torch.tensor([[value] for _, value in PAIRS], dtype=torch.float64)
    read = []
    for queried in torch.eye(3, dtype=torch.float64):
        queries = queried.expand(len(PAIRS), 3)
        read.append(
            recurrent_attention(queries[None, None], keys[None, None], values[None, None], **options)[0, 0, :, 0]
        )
    return torch.stack(read, 1)


def delta() -> None:
    """Three keys, two of them written again: what each rule recalls of each key."""
    base, unit, panel = 220, 15.0, 136
    still = [text(10, 20, "Keys A, B, C get values; what does each recall?", "bold")]
    for number, (title, _, names) in enumerate(RULES.values()):
        x = 10 + number * panel
        still += [text(x, 84, title, f"{names} bold"), line(x, base, x + panel - 16, base, "rule")]
        still += [text(x + 20 + 40 * entry, base + 16, key, "middle dim") for entry, key in enumerate("ABC")]
    still.append(text(10, 258, "dashes: the value that was written last", "small dim"))
    read = {name: recalled(options) for name, (_, options, _) in RULES.items()}
    frames, latest = [], {}
    for token, (key, value) in enumerate(PAIRS):
        again = key in latest
        latest[key] = value
        parts = [
            text(10 + 56 * earlier, 50, f"{name}→{number:g}", "bold" if earlier == token else "dim")
            for earlier, (name, number) in enumerate(PAIRS[: token + 1])
        ]
        if again:
            parts.append(text(WIDTH - 10, 50, f"{key} again", "end two bold"))
        for number, (rule, (_, _, names)) in enumerate(RULES.items()):
            for entry, name in enumerate("ABC"):
                x = 10 + number * panel + 6 + 40 * entry
                parts.append(bar(x, base, 28, unit * read[rule][token, entry].item(), names))
                if name in latest:
                    parts.append(line(x - 3, base - unit * latest[name], x + 31, base - unit * latest[name], "goal"))
        frames.append(parts)
    save("delta", "What linear attention, retention and the delta rule recall of three keys", 270, still, frames, 1.8)


def draw() -> None:
    weights()
    state()
    delta()


if __name__ == "__main__":
    draw()
