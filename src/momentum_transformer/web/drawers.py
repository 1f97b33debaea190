"""A trained pixel model as the page shows it."""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ..bounded import MEGABYTE, UNREADABLE, read_bounded
from ..experiments.pictures.picture_task import PictureTask
from ..experiments.shipped import KEPT_IMAGES
from ..generation.pixels import trace
from ..models.logistic_mixture import mixture_log_likelihood
from ..models.pixel_model import PixelModel
from ..ops.state import state_bytes
from .page_models import Picture, Step

MOST_KEPT = 16 * MEGABYTE  # of pictures beside a run


@dataclass(frozen=True)
class TrainedModel:
    """A trained pixel model; `Drawable` says what its parts mean."""

    name: str
    note: str
    subject: str
    picture: Picture
    momentum: tuple[float, float] | None
    model: PixelModel
    test_images: tuple[bytes, ...]

    def examples(self) -> Sequence[bytes]:
        return self.test_images

    def given_bits(self, given: bytes) -> float:
        pixels = _tensor(given)
        with torch.inference_mode():
            return float(-mixture_log_likelihood(self.model(pixels), pixels).sum()) / math.log(2)

    def draw(self, given: bytes, *, temperature: float, seed: int) -> Iterator[Step]:
        drawing = trace(self.model, count=1, given=_tensor(given), temperature=temperature, seed=seed)
        before = time.perf_counter()
        for pixel, parameters, state in drawing:
            seconds = time.perf_counter() - before
            with torch.inference_mode():
                bits = float(-mixture_log_likelihood(parameters, pixel)) / math.log(2)
            yield Step(int(pixel), bits, state_bytes(state), seconds)
            before = time.perf_counter()


def kept_images(run: Path, task: PictureTask) -> tuple[bytes, ...]:
    """The test images that were kept beside a run which is used without its data; none where there are none."""
    try:
        content = read_bounded(run / KEPT_IMAGES, MOST_KEPT)
    except UNREADABLE:
        return ()
    size = task.pixel_model.length
    return tuple(content[start : start + size] for start in range(0, len(content) - size + 1, size))


def _tensor(values: bytes) -> Tensor:
    return torch.tensor(list(values), dtype=torch.uint8)[None]
