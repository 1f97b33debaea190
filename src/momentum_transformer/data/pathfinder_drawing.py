"""The pens of Pathfinder: paddles and markers, drawn at double size and shrunk by a Lanczos filter.

A paddle is a line of two pixels. At double size its end falls on one of few points, so all paddles there can be are
drawn once. Each has its ink, and the zone around it (two fine pixels wide) that other paddles keep out of.
"""

from functools import cache

import numpy as np

SIDE = 32
FINE = 2  # how much larger things are drawn before they are shrunk
LENGTH = 2  # of a paddle
REACH = 4  # a stamp covers this many pixels around its centre: the paddle, its thickness and its margin
MARGIN = 1
MARKER_RADIUS = 1.5
PITCH = SIDE + 2 * REACH  # a canvas has a rim as wide as a stamp reaches, in which nothing stays

_PLACES = np.arange(PITCH**2).reshape(PITCH, PITCH)
_OFFSETS = (_PLACES[: 2 * REACH + 1, : 2 * REACH + 1] - _PLACES[REACH, REACH]).reshape(-1)
INSIDE = np.pad(np.ones((SIDE, SIDE), np.float32), REACH).reshape(-1)


def flat(place: np.ndarray) -> np.ndarray:
    """The index of (y, x) in a flat canvas."""
    return (place[..., 0] + REACH) * PITCH + place[..., 1] + REACH


def window(place: np.ndarray) -> np.ndarray:
    """(n, 2) → (n, 81): the indices that a stamp covers."""
    return flat(place)[:, None] + _OFFSETS


@cache
def lanczos(outputs: int, inputs: int) -> np.ndarray:
    """(outputs, inputs): the weights that shrink a line of pixels, three lobes wide, cut off at the ends."""
    scale = inputs / outputs
    support = 3 * scale
    weights = np.zeros((outputs, inputs))
    for i in range(outputs):
        centre = (i + 0.5) * scale
        low, high = max(0, int(centre - support + 0.5)), min(inputs, int(centre + support + 0.5))
        x = (np.arange(low, high) + 0.5 - centre) / scale
        weights[i, low:high] = np.where(abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0)
    return weights / weights.sum(1, keepdims=True)


def shrink(images: np.ndarray, side: int) -> np.ndarray:
    """Images (..., n, n) of 0 and 1 → (..., side, side) in [0, 1], rounded to bytes along each axis in turn."""
    weights = lanczos(side, images.shape[-1])
    across = np.rint(np.clip(images * 255.0 @ weights.T, 0, 255))
    return np.rint(np.clip(weights @ across, 0, 255)) / 255


def fine_end(orientation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where a fine paddle that starts at the centre of its stamp ends, as (y, x) from that centre."""
    centre, length = FINE * REACH, FINE * LENGTH
    ends = (np.ceil(centre + length * f(orientation)).astype(int) - centre for f in (np.sin, np.cos))
    y, x = ends
    return y, x


def _line(y: int, x: int) -> np.ndarray:
    """A line one pixel wide from the centre of a fine stamp to the point (y, x) from there."""
    canvas = np.zeros((2 * FINE * REACH + 1,) * 2)
    steps = np.arange(max(abs(y), abs(x)) + 1)
    ys, xs = (np.sign(d) * np.floor(steps * abs(d) / steps[-1] + 0.5).astype(int) for d in (y, x))
    canvas[FINE * REACH + ys, FINE * REACH + xs] = 1
    return canvas


def _widen(canvas: np.ndarray, radius: int) -> np.ndarray:
    """Every pixel within `radius` of a drawn one."""
    padded = np.pad(canvas, radius)
    n = len(canvas)
    wide = np.zeros_like(canvas)
    for dy in range(-radius, radius + 1):
        for dx in range(-radius, radius + 1):
            if dy * dy + dx * dx <= radius * radius:
                shifted = padded[radius + dy : radius + dy + n, radius + dx : radius + dx + n]
                wide = np.maximum(wide, shifted)
    return wide


class Stamps:
    """All paddles there can be: ink and zone, flat (s, 81), and which one belongs to an orientation."""

    def __init__(self) -> None:
        every = np.radians(np.arange(-180, 180, 0.25))
        ends = sorted({(int(y), int(x)) for y, x in zip(*fine_end(every), strict=True)})
        side = 2 * REACH + 1
        lines = [_line(y, x) for y, x in ends]
        zones = [shrink(_widen(line, FINE * MARGIN), side) for line in lines]
        self.ink = np.stack([shrink(line, side).reshape(-1) for line in lines])
        self.zone = np.stack([zone.reshape(-1) for zone in zones]).astype(np.float32)
        self.cores = [_core(zone) for zone in zones]
        most = max(map(len, self.cores))
        whole = np.stack([core[np.arange(most) % len(core)] for core in self.cores])
        self.core_offsets = whole[..., 0] * PITCH + whole[..., 1]  # (s, k), in a flat canvas
        self.starts = np.array([_can_start(core) for core in self.cores])  # (s,)
        self._number = np.full((side * FINE, side * FINE), -1)
        for number, (y, x) in enumerate(ends):
            self._number[y, x] = number  # negative ends count from the end of the table

    def of(self, orientation: np.ndarray) -> np.ndarray:
        return self._number[fine_end(orientation)]


def _core(zone: np.ndarray) -> np.ndarray:
    """(k, 2): the pixels that must be free for a snake to start, counted from its first pixel.

    The published generator looks one pixel down and right of the paddle that it then draws, and no further than two
    pixels on; that is kept, because it shapes the distribution.
    """
    places = np.argwhere(zone == 1) - REACH
    return places[(places <= LENGTH).all(1)] + 1


def _can_start(core: np.ndarray) -> bool:
    """Whether a snake may start with this paddle: from every pixel of the picture, one of the core must be inside.

    Otherwise the published generator takes the maximum of nothing and gives up; few orientations avoid this. That is
    kept too: it decides how many distracting snakes there are.
    """
    corners = np.array([(0, 0), (0, SIDE - 1), (SIDE - 1, 0), (SIDE - 1, SIDE - 1)])
    seen = corners[:, None] + core
    return bool(((seen >= 0) & (seen < SIDE)).all(-1).any(-1).all())


@cache
def stamps() -> Stamps:
    return Stamps()


@cache
def _discs() -> np.ndarray:
    """(32, 32, 32, 32): a marker around each pixel there is."""
    fine, centre = np.arange(SIDE * FINE), np.arange(SIDE) * FINE
    squared = (fine - centre[:, None]) ** 2
    drawn = squared[:, None, :, None] + squared[None, :, None, :] <= (MARKER_RADIUS * FINE) ** 2
    return np.stack([shrink(row.astype(float), SIDE) for row in drawn])


def markers(centres: np.ndarray) -> np.ndarray:
    """(n, k, 2) centres → (n, 32, 32): k markers in each picture, in [0, 1]."""
    return _discs()[centres[..., 0], centres[..., 1]].max(1)
