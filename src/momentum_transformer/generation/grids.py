"""Pictures on disk: a grid in one PNG, one PNG each, and an animated GIF of how they were drawn."""

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from ..durable import make_folder, replace_file
from ..errors import UserError
from ..install import install_hint

Shape = tuple[int, int, int]  # height, width, channels
GAP = 2
PAPER = 255  # around the pictures
UNDRAWN = np.array([96, 128, 160], dtype=np.uint8)
SMALLEST = 56  # pixels on the screen; smaller pictures are enlarged
MILLISECONDS = 4000  # a drawing takes about as long, however many bytes it has
FRAMES = 80


class PictureError(UserError):
    """Pictures that cannot be written; the message is for the user."""


def save_grid(pictures: Tensor, shape: Shape, path: Path) -> None:
    """All pictures, uint8 (count, n), side by side in one PNG."""
    _save(_image(_grid(_colours(pictures, shape))), path)


def save_singles(pictures: Tensor, shape: Shape, folder: Path) -> None:
    """Each picture in a PNG of its own size, `000.png` and so on."""
    digits = max(3, len(str(len(pictures) - 1)))
    for i, picture in enumerate(_colours(pictures, shape)):
        _save(_image(picture), folder / f"{i:0{digits}}.png")


def save_drawing(pictures: Tensor, shape: Shape, path: Path, *, given: int = 0) -> None:
    """An animated GIF of the grid being drawn, from the first `given` bytes on."""
    n = pictures.shape[1]
    stops = sorted({round(stop) for stop in np.linspace(given, n, min(FRAMES, n - given + 1))})
    whole = _colours(pictures, shape)
    step = shape[2]
    frames = []
    for stop in stops:
        frame = whole.reshape(len(whole), -1, 3).copy()
        frame[:, -(-stop // step) :] = UNDRAWN
        frames.append(_image(_grid(frame.reshape(whole.shape))))
    pause = max(20, MILLISECONDS // len(frames))
    times = [pause] * (len(frames) - 1) + [2000]
    _save(frames[0], path, save_all=True, append_images=frames[1:], duration=times, loop=0)


def _colours(pictures: Tensor, shape: Shape) -> np.ndarray:
    """(count, height, width, 3)"""
    height, width, channels = shape
    if pictures.ndim != 2 or pictures.shape[1] != math.prod(shape) or channels not in (1, 3) or not len(pictures):
        raise ValueError(f"pictures must be (count, {math.prod(shape)}), grey or RGB, not {tuple(pictures.shape)}")
    array: np.ndarray = pictures.cpu().numpy().reshape(-1, height, width, channels)
    return np.broadcast_to(array, (*array.shape[:3], 3))


def _grid(pictures: np.ndarray) -> np.ndarray:
    """(count, height, width, 3) → one (height, width, 3), enlarged where the pictures are tiny."""
    zoom = max(1, -(-SMALLEST // max(pictures.shape[1:3])))
    pictures = pictures.repeat(zoom, 1).repeat(zoom, 2)
    count, height, width, _ = pictures.shape
    columns = math.ceil(math.sqrt(count))
    rows = -(-count // columns)
    page = np.full((rows * (height + GAP) + GAP, columns * (width + GAP) + GAP, 3), PAPER, dtype=np.uint8)
    for i, picture in enumerate(pictures):
        row, column = divmod(i, columns)
        top, left = row * (height + GAP) + GAP, column * (width + GAP) + GAP
        page[top : top + height, left : left + width] = picture
    return page


def _image(array: np.ndarray) -> Any:
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise PictureError(f"pictures need pillow: {install_hint('figures')}") from None
    return Image.fromarray(np.ascontiguousarray(array))


def prepare_path(path: Path, suffix: str) -> None:
    """Refuse a name or place that cannot be, before anything is drawn."""
    if path.suffix.lower() != suffix:
        raise PictureError(f"{path} must end in {suffix}")
    try:
        make_folder(path.parent)
    except OSError as error:
        raise PictureError(f"{path} cannot be written: {error}") from None


def _save(image: Any, path: Path, **options: Any) -> None:
    suffix = ".gif" if options else ".png"
    prepare_path(path, suffix)
    try:
        replace_file(path, partial(image.save, format=suffix[1:].upper(), **options))
    except OSError as error:
        raise PictureError(f"{path} cannot be written: {error}") from None
