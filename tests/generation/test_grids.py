"""Pictures on disk have the pixels that were drawn."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from momentum_transformer import durable
from momentum_transformer.generation.grids import PictureError, save_drawing, save_grid, save_singles

Image = pytest.importorskip("PIL.Image", reason="pillow is not installed")


def some(count: int, shape: tuple[int, int, int]) -> torch.Tensor:
    return torch.randint(0, 256, (count, int(np.prod(shape))), dtype=torch.uint8)


def load(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image)


@pytest.mark.parametrize("shape", [(60, 56, 1), (56, 60, 3)], ids=["grey", "colour"])
def test_a_grid_shows_every_picture_in_order(shape: tuple[int, int, int], tmp_path: Path) -> None:
    height, width, channels = shape
    pictures = some(5, shape)
    save_grid(pictures, shape, tmp_path / "new" / "grid.png")
    page = load(tmp_path / "new" / "grid.png")
    assert page.shape == (2 * (height + 2) + 2, 3 * (width + 2) + 2, 3)
    fourth = page[height + 4 : 2 * height + 4, 2 : 2 + width, :channels]
    assert np.array_equal(fourth, pictures[3].numpy().reshape(shape))
    assert (page[height + 4 :, 2 * (width + 2) + 2 :] == 255).all()


def test_tiny_pictures_are_enlarged_in_grids_and_not_by_themselves(tmp_path: Path) -> None:
    pictures = some(4, (8, 8, 1))
    save_grid(pictures, (8, 8, 1), tmp_path / "grid.png")
    assert load(tmp_path / "grid.png").shape == (2 * (56 + 2) + 2, 2 * (56 + 2) + 2, 3)
    save_singles(pictures, (8, 8, 1), tmp_path / "singles")
    assert sorted(path.name for path in (tmp_path / "singles").iterdir()) == [f"00{i}.png" for i in range(4)]
    third = load(tmp_path / "singles" / "002.png")
    assert np.array_equal(third[..., 0], pictures[2].numpy().reshape(8, 8))


def test_the_animation_starts_with_what_was_given_and_ends_with_the_whole(tmp_path: Path) -> None:
    pictures = torch.zeros(1, 64 * 64, dtype=torch.uint8)
    save_drawing(pictures, (64, 64, 1), tmp_path / "drawing.gif", given=64 * 32)
    with Image.open(tmp_path / "drawing.gif") as animation:
        assert animation.n_frames == 80
        first = np.asarray(animation.convert("RGB")).astype(int)
        animation.seek(79)
        last = np.asarray(animation.convert("RGB")).astype(int)
    assert (first[2:34, 2:66] < 10).all()
    assert (first[34:66, 2:66, 2] > 100).all()
    assert (last[2:66, 2:66] < 10).all()


def test_a_whole_picture_is_an_animation_of_one_frame(tmp_path: Path) -> None:
    save_drawing(some(1, (8, 8, 1)), (8, 8, 1), tmp_path / "drawing.gif", given=64)
    with Image.open(tmp_path / "drawing.gif") as animation:
        assert animation.n_frames == 1


def test_what_cannot_be_written_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures, shape = some(1, (8, 8, 1)), (8, 8, 1)
    with pytest.raises(PictureError, match=r"grid.jpg must end in .png"):
        save_grid(pictures, shape, tmp_path / "grid.jpg")
    with pytest.raises(PictureError, match=r"drawing.png must end in .gif"):
        save_drawing(pictures, shape, tmp_path / "drawing.png")
    (tmp_path / "file").write_text("")
    with pytest.raises(PictureError, match="cannot be written"):
        save_grid(pictures, shape, tmp_path / "file" / "grid.png")
    with pytest.raises(ValueError, match=r"pictures must be \(count, 64\)"):
        save_grid(pictures[:, :9], shape, tmp_path / "grid.png")
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(PictureError, match="pictures need pillow: pip install"):
        save_grid(pictures, shape, tmp_path / "grid.png")


def test_a_picture_is_on_the_disk_before_it_takes_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[tuple[str, bool]] = []
    monkeypatch.setattr(durable, "sync", lambda path: events.append((path.name, (tmp_path / "grid.png").exists())))
    save_grid(some(1, (8, 8, 1)), (8, 8, 1), tmp_path / "grid.png")
    assert events == [(f"grid.png.{os.getpid()}.writing", False), (tmp_path.name, True)]
