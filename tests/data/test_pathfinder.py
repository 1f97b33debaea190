"""Pathfinder: the official layout, and pictures of our own that follow the published distribution."""

import io
import tarfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from momentum_transformer.data.folder import DataError
from momentum_transformer.data.pathfinder import load_pathfinder, read_pathfinder
from momentum_transformer.data.pathfinder_drawing import PITCH, REACH, stamps
from momentum_transformer.data.pathfinder_generator import (
    BLOCK,
    contact_sheet,
    generate,
    generate_block,
    two_snakes,
)
from momentum_transformer.data.png import write_grey_png

from .official import official

NAME = "curv_contour_length_14"


@pytest.fixture(scope="module")
def ours() -> tuple[np.ndarray, np.ndarray]:
    return generate(2 * BLOCK, seed=0, workers=1)


@pytest.fixture(scope="module")
def published() -> tuple[np.ndarray, np.ndarray]:
    """A thousand pictures by the original generator."""
    archive = official("pathfinder32/pathfinder32-generated-1000.tar.gz")
    arrays = read_pathfinder(archive, NAME)
    return arrays["pixels"].reshape(-1, 32, 32), arrays["labels"]


def write_set(folder: Path, count: int = 20) -> np.ndarray:
    images = np.random.default_rng(0).integers(0, 256, (count, 32, 32), dtype=np.uint8)
    (folder / "imgs" / "0").mkdir(parents=True)
    (folder / "metadata").mkdir()
    lines = []
    for i, image in enumerate(images):
        (folder / "imgs" / "0" / f"sample_{i}.png").write_bytes(write_grey_png(image))
        lines.append(f"imgs/0 sample_{i}.png {i} {i % 2} 1.0 14 4 2 0.5 1 1\n")
    (folder / "metadata" / "0.npy").write_text("".join(lines))
    return images


@pytest.mark.parametrize("packed", [True, False])
def test_the_official_layout_is_read_packed_or_not(packed: bool, tmp_path: Path) -> None:
    folder = tmp_path / "pathfinder32" / NAME
    images = write_set(folder)
    if packed:
        with tarfile.open(tmp_path / "pathfinder32.tar.gz", "w:gz") as tar:
            tar.add(folder, f"pathfinder32/{NAME}")
        folder.rename(tmp_path / "elsewhere")
        (tmp_path / "pathfinder32.tar.gz").rename(tmp_path / "pathfinder32" / "pathfinder32.tar.gz")
    splits = load_pathfinder(tmp_path, count=20)
    parts = [splits.train[0], splits.validation[0], splits.test[0]]
    assert [len(part) for part in parts] == [16, 2, 2]
    rows = np.concatenate([part.rows(np.arange(len(part))) for part in parts])
    labels = np.concatenate([part.labels for part in parts])
    order = [int((images.reshape(20, -1) == row).all(1).argmax()) for row in rows]
    assert sorted(order) == list(range(20))
    assert order != list(range(20))
    assert labels.tolist() == [i % 2 for i in order]


def break_set(folder: Path, what: str) -> None:
    listing, picture = folder / "metadata" / "0.npy", folder / "imgs" / "0" / "sample_3.png"
    match what:
        case "metadata":
            listing.unlink()
        case "empty metadata":
            listing.write_text("")
        case "label":
            listing.write_text(listing.read_text().replace("sample_3.png 3 1", "sample_3.png 3 7"))
        case "row":
            listing.write_text("imgs/0\n")
        case "picture":
            picture.unlink()
        case "size":
            picture.write_bytes(write_grey_png(np.zeros((64, 64), np.uint8)))
        case "content":
            picture.write_bytes(b"")


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("metadata", "has no metadata for curv_contour_length_14"),
        ("empty metadata", r"metadata/0.npy names no pictures"),
        ("label", r"metadata/0.npy line 4: expected folder, file, number and label 0 or 1"),
        ("row", r"metadata/0.npy line 1: expected folder, file"),
        ("picture", r"metadata/0.npy line 4: there is no imgs/0/sample_3.png"),
        ("size", r"sample_3.png is not a grey 8-bit PNG of 32 x 32 pixels: it has 64 x 64 pixels"),
        ("content", r"sample_3.png is not a grey 8-bit PNG"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_cached(what: str, message: str, tmp_path: Path) -> None:
    folder = tmp_path / "pathfinder32" / NAME
    write_set(folder)
    break_set(folder, what)
    for _ in range(2):
        with pytest.raises(DataError, match=message):
            load_pathfinder(tmp_path, count=20)


def test_fewer_pictures_than_asked_for_are_not_passed_off_as_enough(tmp_path: Path) -> None:
    write_set(tmp_path / "pathfinder32" / NAME)
    with pytest.raises(DataError, match=r"has 20 pictures where 200,000 are asked for.*data.generated=true"):
        load_pathfinder(tmp_path)
    assert len(load_pathfinder(tmp_path, count=30, generated=True, workers=1).train[0]) == 24


def test_an_archive_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    write_set(tmp_path / "set")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        tar.add(tmp_path / "set", NAME)
    (tmp_path / "pathfinder32.tar.gz").write_bytes(buffer.getvalue()[:-200])
    with pytest.raises(DataError, match="cut off or damaged"):
        read_pathfinder(tmp_path / "pathfinder32.tar.gz", NAME)


def test_the_seed_decides_and_the_number_of_workers_does_not(ours: tuple[np.ndarray, np.ndarray]) -> None:
    images, labels = generate(BLOCK + 10, seed=0, workers=2)
    assert np.array_equal(images, ours[0][: BLOCK + 10])
    assert np.array_equal(labels, ours[1][: BLOCK + 10])
    assert not np.array_equal(generate_block(0, contour=14, seed=1)[0], images[:BLOCK])


def test_target_snakes_are_whole_and_their_paddles_keep_apart() -> None:
    _, snakes = two_snakes(65_536, 14, np.random.default_rng(0))
    for snake in snakes:
        assert len(snake) == 14
        steps = [np.linalg.norm(b.place - a.place, axis=1) for a, b in pairwise(snake[1:])]
        assert 2 <= np.min(steps) <= np.max(steps) < 7  # a paddle and a gap: about four pixels
        bends = [abs(b.orientation - a.orientation) for a, b in pairwise(snake[1:])]
        turns = np.minimum(bends, 2 * np.pi - np.array(bends))
        assert turns.max() < np.pi / 2  # a right angle has no chance
        assert np.mean(turns) < np.pi / 5
    starts = np.linalg.norm(snakes[0][0].place - snakes[1][0].place, axis=1)
    assert np.abs(starts - 7).max() < 1


def test_no_paddle_touches_the_zone_of_one_drawn_before() -> None:
    _, (first, second) = two_snakes(65_536, 14, np.random.default_rng(1))
    zone = np.zeros((len(first[0].row), PITCH, PITCH), np.float32)
    worst = 0.0
    pen = stamps().zone.reshape(-1, 2 * REACH + 1, 2 * REACH + 1)
    claimed: list[list] = [[], []]
    for turn in range(14):
        for which, snake in enumerate((first, second)):
            paddles = snake[turn]
            for i in range(len(paddles.row)):
                y, x = paddles.place[i]
                window = zone[i, y : y + 2 * REACH + 1, x : x + 2 * REACH + 1]
                if turn:
                    worst = max(worst, float((window + pen[paddles.stamp[i]])[window > 0].max(initial=0)))
            claimed[which].append(paddles)
            if turn:  # a paddle is claimed when the next one of its snake stands
                before = claimed[which][-2]
                for i in range(len(before.row)):
                    y, x = before.place[i]
                    window = zone[i, y : y + 2 * REACH + 1, x : x + 2 * REACH + 1]
                    np.maximum(window, pen[before.stamp[i]], out=window)
    assert 0 < worst < 1.8


def test_labels_are_balanced(ours: tuple[np.ndarray, np.ndarray], published: tuple[np.ndarray, np.ndarray]) -> None:
    for _, labels in (ours, published):
        assert abs(labels.mean() - 0.5) < 3 * 0.5 / len(labels) ** 0.5


def test_intensities_are_those_of_the_published_generator(
    ours: tuple[np.ndarray, np.ndarray], published: tuple[np.ndarray, np.ndarray]
) -> None:
    edges = [0, 1, 20, 60, 100, 155, 200, 256]
    shares = [np.histogram(images, edges)[0] / images.size for images, _ in (ours, published)]
    assert shares[0] == pytest.approx(shares[1], rel=0.04)


def test_contours_are_as_long_as_those_of_the_published_generator(
    ours: tuple[np.ndarray, np.ndarray], published: tuple[np.ndarray, np.ndarray]
) -> None:
    """Inked pixels grow with the number of paddles: 28 of the targets, and those of the snakes that distract."""
    lengths = [(images > 60).sum((1, 2)) for images, _ in (ours, published)]
    assert lengths[0].mean() == pytest.approx(lengths[1].mean(), rel=0.015)
    quantiles = [np.percentile(length, [5, 25, 50, 75, 95]) for length in lengths]
    assert quantiles[0] == pytest.approx(quantiles[1], abs=4)


def test_ink_lies_where_the_published_generator_puts_it(
    ours: tuple[np.ndarray, np.ndarray], published: tuple[np.ndarray, np.ndarray]
) -> None:
    for axes in ((0, 1), (0, 2)):
        across = [images.astype(float).mean(axes) for images, _ in (ours, published)]
        assert np.abs(across[0] - across[1]).max() < 2.5  # of about 20
        assert np.corrcoef(across)[0, 1] > 0.99


def test_harder_pictures_have_longer_paths() -> None:
    inked = [(generate_block(0, contour=contour, seed=0)[0] > 60).sum() for contour in (6, 9, 14)]
    assert inked[0] < inked[1] < inked[2]


def test_the_contact_sheet_keeps_the_labels_apart(ours: tuple[np.ndarray, np.ndarray]) -> None:
    images, labels = (part[:100] for part in ours)
    sheet = contact_sheet(images, labels, columns=10)
    above = (labels == 0).sum() // 10
    assert sheet.shape == ((above + (labels == 1).sum() // 10) * 34 + 4, 340)
    assert np.array_equal(sheet[1:33, 1:33], images[labels == 0][0])
    assert (sheet[above * 34 : above * 34 + 4] == 255).all()


@pytest.mark.parametrize(("count", "difficulty"), [(0, "hard"), (10, "impossible")])
def test_impossible_sets_are_refused(count: int, difficulty: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="Pathfinder is easy, medium, hard"):
        generate(count, difficulty=difficulty)
    with pytest.raises(DataError, match="Pathfinder is easy, medium, hard"):
        load_pathfinder(tmp_path, count=count, difficulty=difficulty)
