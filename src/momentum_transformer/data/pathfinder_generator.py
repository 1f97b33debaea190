"""Pathfinder pictures by the published rules: are the two marked ends those of the same dashed path?

Two target snakes of equally many paddles start near the centre, seven pixels apart, and grow in turns. A paddle goes
to a free pixel three steps from the joint, preferring to go straight on (the square of the cosine of the turn), and
must keep out of the zones of the others. Attempts in which a snake gets stuck are dropped. Shorter snakes are added to
distract. Thousands of attempts grow side by side; pictures come in blocks, each from random numbers of its own, so
that it does not matter who makes it.
"""

from dataclasses import dataclass, fields
from functools import partial

import numpy as np

from .folder import DataError
from .pathfinder_drawing import INSIDE, LENGTH, MARGIN, PITCH, REACH, SIDE, flat, markers, stamps, window
from .workers import made_blocks

CONTOURS = {"easy": 6, "medium": 9, "hard": 14}  # paddles of a target snake
BLOCK = 500  # pictures
WAVE = 65_536  # attempts in one batch, most of which fail
TRIALS = 3  # per paddle
SNAKE_TRIALS = 5  # per distracting snake
SEED_DISTANCE = 7
TARGET_CONTRAST, DISTRACTOR_CONTRAST = 1.5, 2.0
FREE = 0.3  # a pixel whose zone is fainter counts as free
OVERLAP = 1.8  # two zones that add up to this collide

# the pixels about three steps from a joint, and the direction of each
_TURNS = np.arange(0, 360, 180 / ((LENGTH + MARGIN) * np.pi)) * np.pi / 180
AROUND = np.unique(np.floor((LENGTH + MARGIN) * np.stack([np.sin(_TURNS), np.cos(_TURNS)], 1)).astype(int), axis=0)
DIRECTION = np.arctan2(AROUND[:, 0], AROUND[:, 1])
PLUS = np.array([0, 1, PITCH, -1, -PITCH])

Random = np.random.Generator


@dataclass
class Paddles:
    """One paddle in each of n pictures."""

    row: np.ndarray  # (n,)    the picture
    joint: np.ndarray  # (n, 2)  where the paddle begins, with the gap before it
    orientation: np.ndarray  # (n,)
    stamp: np.ndarray  # (n,)    how it is drawn
    place: np.ndarray  # (n, 2)  and where

    def take(self, index: np.ndarray) -> "Paddles":
        return Paddles(*(getattr(self, field.name)[index] for field in fields(self)))


def blank(n: int) -> np.ndarray:
    """The zones of n empty pictures, flat: 1 where no paddle may go, which is the outermost line of pixels."""
    zone = np.zeros((n, PITCH, PITCH), np.float32)
    zone[:, REACH:-REACH, REACH:-REACH] = 1
    zone[:, REACH + 1 : -REACH - 1, REACH + 1 : -REACH - 1] = 0
    return zone.reshape(-1)


def move(place: np.ndarray, orientation: np.ndarray, distance: int) -> np.ndarray:
    """The pixel at a distance; the published rules round up."""
    step = distance * np.stack([np.sin(orientation), np.cos(orientation)], -1)
    return np.ceil(place + step).astype(int)


def flip(orientation: np.ndarray) -> np.ndarray:
    return np.where(orientation < 0, orientation + np.pi, orientation - np.pi)


def inside(place: np.ndarray) -> np.ndarray:
    return np.asarray(((place >= 0) & (place < SIDE)).all(-1))


def random_orientation(n: int, rng: Random) -> np.ndarray:
    return np.radians(rng.integers(-180, 180, n))


def pick(choices: np.ndarray, rng: Random) -> np.ndarray:
    """The column of one True of each row, all equally likely; 0 where there is none."""
    wanted = np.floor(rng.random(len(choices)) * choices.sum(1)) + 1
    return (choices.cumsum(1, dtype=np.int16) >= wanted[:, None]).argmax(1)


def first_paddles(row: np.ndarray, tail: np.ndarray, orientation: np.ndarray) -> tuple[Paddles, np.ndarray]:
    """A paddle from each tail, and whether it fits into the picture."""
    head = move(tail, orientation, LENGTH)
    joint = move(head, flip(orientation), LENGTH + MARGIN)
    return Paddles(row, joint, orientation, stamps().of(orientation), tail), inside(head) & inside(joint)


def claim(zone: np.ndarray, paddles: Paddles) -> None:
    """From now on, other paddles keep out of the zone of this one."""
    local = window(paddles.place)
    at = paddles.row[:, None] * PITCH**2 + local
    zone[at] = np.maximum(zone[at], stamps().zone[paddles.stamp] * INSIDE[local])


def extend(zone: np.ndarray, paddles: Paddles, rng: Random) -> tuple[Paddles, np.ndarray]:
    """The next paddle of each snake that has room for one, and the index of those snakes."""
    base = paddles.row * PITCH**2
    joint = move(paddles.joint, paddles.orientation, LENGTH + 2 * MARGIN)
    ends = joint[:, None] + AROUND
    near = flat(np.clip(ends, 0, SIDE - 1))
    taken = zone[base[:, None] + near]
    for step in PLUS[1:]:
        taken = np.maximum(taken, zone[base[:, None] + near + step])
    turn = abs(DIRECTION - paddles.orientation[:, None])
    turn = np.minimum(np.minimum(turn, 2 * np.pi - turn), np.pi / 2)
    chances = ((1 - taken) * np.cos(turn) ** 2 * inside(ends)).cumsum(1)
    choice = np.zeros(len(base), int)
    grown = np.zeros(len(base), bool)
    rest = np.flatnonzero(chances[:, -1] >= 1e-4)
    for _ in range(TRIALS):
        drawn = rng.random(len(rest)) * chances[rest, -1]
        choice[rest] = (chances[rest] > drawn[:, None]).argmax(1)
        local = window(ends[rest, choice[rest]])
        zones = stamps().zone[stamps().of(flip(DIRECTION[choice[rest]]))] * INSIDE[local]
        free = (zone[base[rest, None] + local] + zones).max(1, initial=0) < OVERLAP
        grown[rest] = free
        rest = rest[~free]
    on = np.flatnonzero(grown)
    claim(zone, paddles.take(on))
    orientation = DIRECTION[choice[on]]
    stamp = stamps().of(flip(orientation))
    return Paddles(paddles.row[on], joint[on], orientation, stamp, ends[on, choice[on]]), on


def seed_places(n: int, rng: Random) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tail, in the central pixels, and orientation of the first snake, and whether there is a tail for it."""
    low, high = 2 * SEED_DISTANCE, SIDE - 2 * SEED_DISTANCE
    centre = np.stack(np.meshgrid(np.arange(low, high), np.arange(low, high), indexing="ij"), -1).reshape(-1, 2)
    around = [centre[:, None] + core for core in stamps().cores]
    free = np.stack([((pixels >= low) & (pixels < high)).all((1, 2)) for pixels in around]) & stamps().starts[:, None]
    orientation = random_orientation(n, rng)
    choices = free[stamps().of(orientation)]
    return centre[pick(choices, rng)], orientation, choices.any(1)


def two_snakes(n: int, length: int, rng: Random) -> tuple[np.ndarray, list[list[Paddles]]]:
    """Of n attempts those that succeed: zones, and for each of two snakes its paddles."""
    tail, orientation, there = seed_places(n, rng)
    tail, orientation = tail[there], orientation[there]
    zone, rows = blank(len(tail)), np.arange(len(tail))
    angle = np.radians(rng.integers(0, 360, len(tail)))
    other = np.rint(tail + SEED_DISTANCE * np.stack([np.sin(angle), np.cos(angle)], -1)).astype(int)
    snakes = [
        [first_paddles(rows, tail, orientation)[0]],
        [first_paddles(rows, other, random_orientation(len(tail), rng))[0]],
    ]
    for _ in range(length - 1):
        for snake in snakes:
            longer, on = extend(zone, snake[-1], rng)
            for part in snakes:
                part[:] = [paddles.take(on) for paddles in part]
            snake.append(longer)
    claim(zone, snakes[1][-1])
    alive = snakes[0][0].row
    for snake in snakes:
        for paddles in snake:
            paddles.row = np.arange(len(alive))
    return zone.reshape(-1, PITCH**2)[alive], snakes


def start_anywhere(zone: np.ndarray, rows: np.ndarray, rng: Random) -> Paddles:
    """First paddles of distracting snakes, in those of the pictures where one finds a place."""
    offsets = stamps().core_offsets
    grid = flat(np.stack(np.meshgrid(np.arange(SIDE), np.arange(SIDE), indexing="ij"), -1)).reshape(-1)
    found = []
    for _ in range(TRIALS):
        orientation = random_orientation(len(rows), rng)
        # the published rules try no second orientation where the first one cannot start
        can = stamps().starts[stamps().of(orientation)]
        rows, orientation = rows[can], orientation[can]
        taken = np.zeros((len(rows), SIDE * SIDE), np.float32)
        for step in offsets[stamps().of(orientation)].T:
            taken = np.maximum(taken, zone[(rows * PITCH**2 + step)[:, None] + grid])
        choices = taken <= FREE
        tail = np.stack(np.divmod(pick(choices, rng), SIDE), -1)
        paddles, fits = first_paddles(rows, tail, orientation)
        some = choices.any(1)
        found.append(paddles.take(np.flatnonzero(some & fits)))
        rows = rows[some & ~fits]
    return Paddles(*(np.concatenate([getattr(part, field.name) for part in found]) for field in fields(Paddles)))


def distract(zone: np.ndarray, count: int, length: int, rng: Random) -> list[Paddles]:
    """`count` shorter snakes for every picture; those that find no room in five trials are left out."""
    drawn = []
    n = len(zone)
    for _ in range(count):
        waiting = np.arange(n)
        for _ in range(SNAKE_TRIALS):
            trial = zone.reshape(-1).copy()
            snake = [start_anywhere(trial, waiting, rng)]
            for _ in range(length - 1):
                longer, on = extend(trial, snake[-1], rng)
                snake = [*(paddles.take(on) for paddles in snake), longer]
            claim(trial, snake[-1])
            done = snake[-1].row
            zone[done] = trial.reshape(n, -1)[done]
            drawn += snake
            waiting = np.setdiff1d(waiting, done)
    return drawn


def draw(ink: np.ndarray, paddles: Paddles, contrast: float) -> None:
    local = window(paddles.place)
    at = paddles.row[:, None] * PITCH**2 + local
    ink[at] = np.maximum(ink[at], stamps().ink[paddles.stamp] * INSIDE[local] * contrast)


def generate_block(number: int, *, contour: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Block `number` of the endless series of blocks that belongs to a seed: pictures (500, 32, 32) and labels."""
    rng = np.random.default_rng((seed, contour, number))
    ink, firsts, lasts = [], [], []
    zones: list[np.ndarray] = []
    while sum(len(zone) for zone in zones) < BLOCK:
        zone, snakes = two_snakes(WAVE, contour, rng)
        drawn = np.zeros(zone.size)
        for paddles in (*snakes[0], *snakes[1]):
            draw(drawn, paddles, TARGET_CONTRAST)
        ink.append(drawn.reshape(zone.shape))
        zones.append(zone)
        firsts.append(np.stack([snake[0].place for snake in snakes], 1))
        lasts.append(np.stack([snake[-1].place for snake in snakes], 1))
    canvas, zone, first, last = (np.concatenate(parts)[:BLOCK] for parts in (ink, zones, firsts, lasts))
    for paddles in distract(zone, 20 // (contour // 3), contour // 3, rng):
        draw(canvas.reshape(-1), paddles, DISTRACTOR_CONTRAST)
    label, origin, rows = rng.integers(0, 2, BLOCK), rng.integers(0, 2, BLOCK), np.arange(BLOCK)
    end = np.where(label == 1, origin, 1 - origin)
    marks = markers(np.stack([first[rows, origin], last[rows, end]], 1))
    images = np.maximum(canvas.reshape(BLOCK, PITCH, PITCH)[:, REACH:-REACH, REACH:-REACH], marks)
    low, high = images.min((1, 2), keepdims=True), images.max((1, 2), keepdims=True)
    return ((images - low) * (255 / (high - low)) + 0.5).astype(np.uint8), label


def generate(
    count: int, *, difficulty: str = "hard", seed: int = 0, workers: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """`count` pictures (count, 32, 32) of bytes and labels (count,), 1 where the ends belong together."""
    if difficulty not in CONTOURS or count < 1:
        raise DataError(f"Pathfinder is {', '.join(CONTOURS)}, 1 picture or more, not {difficulty!r} and {count}")
    blocks = -(-count // BLOCK)
    make = partial(generate_block, contour=CONTOURS[difficulty], seed=seed)
    made = made_blocks(make, blocks, workers)
    images, labels = (np.concatenate(parts)[:count] for parts in zip(*made, strict=True))
    return images, labels


def contact_sheet(images: np.ndarray, labels: np.ndarray, columns: int = 16) -> np.ndarray:
    """One picture of many, to look at: whole lines of those with label 0, and below a bar those with label 1."""
    width = columns * (SIDE + 2)
    halves = []
    for label in (0, 1):
        chosen = images[labels == label]
        framed = np.pad(chosen[: len(chosen) // columns * columns], ((0, 0), (1, 1), (1, 1)), constant_values=64)
        lines = framed.reshape(-1, columns, SIDE + 2, SIDE + 2).transpose(0, 2, 1, 3)
        halves.append(lines.reshape(-1, width))
    return np.concatenate([halves[0], np.full((4, width), 255, np.uint8), halves[1]])
