"""Pictures byte by byte: Tables 2 (MNIST) and 3 (CIFAR-10), with Fashion-MNIST, digits and one's own beside them.

Scored are nats a byte over every byte. `bits_per_dim` is the same in bits; `bits_per_dim_paper` leaves out the first
byte of each picture, which the paper's protocol gives away.
"""

import math
from collections.abc import Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor, nn

from ...data.folder import DataError, data_root
from ...data.images import ImageSet, hold_out, is_here, load_images, pooled
from ...data.order import batch_rows
from ...data.picture_files import load_pictures
from ...generation.grids import PictureError, Shape, save_grid
from ...generation.pixels import draw_images
from ...models.logistic_mixture import mixture_log_likelihood
from ...models.pixel_model import PixelModel
from ...training.task import Score
from ..experiment import Experiment, Study, Variant
from ..named_models import FAMILY, MODELS
from .picture_scales import OwnPictureConfig, OwnPictureData, PictureConfig, own_picture_config, picture_config

PICTURE_MODELS = tuple(name for name in MODELS if name != "reformer")
EVALUATION_BYTES = 16_384  # of a batch: without gradients it may be larger than in training
SAMPLES = 16


class PictureTask:
    """A pixel model and one set of images. Images are loaded when they are needed, and drawing needs none."""

    def __init__(
        self, images: str, config: PictureConfig | OwnPictureConfig, seed: int, data_dir: Path | None = None
    ) -> None:
        self.images = images
        self.config = config
        self.seed = seed
        self.data_dir = data_root(data_dir)
        self.shape: Shape = config.data.shape(images)
        torch.manual_seed(seed)
        self.pixel_model = PixelModel(config.model.encoder(causal=True), length=math.prod(self.shape))
        self.model: nn.Module = self.pixel_model

    @cached_property
    def _set(self) -> ImageSet:
        data = self.config.data
        if not isinstance(data, OwnPictureData):
            return load_images(self.images, self.data_dir)
        if not data.source:
            raise DataError("which pictures? momentum train images --source FOLDER")
        return load_pictures(Path(data.source), size=data.size, colour=data.colour)

    @cached_property
    def _training(self) -> tuple[Tensor, Tensor]:
        """Images to train on and images to validate on, (n, bytes) each."""
        images = self._flat(self._set.train.images)
        train, validation = hold_out(len(images), self.config.data.validation)
        return images[train], images[validation]

    @cached_property
    def test_images(self) -> Tensor:
        """The whole test split, bytes (n, length)."""
        return self._flat(self._set.test.images)

    def examples(self, count: int) -> tuple[Tensor, str]:
        """Test images to look at, (count, length), or none and why; nothing is downloaded for them."""
        try:
            if isinstance(self.config.data, OwnPictureData) or is_here(self.images, self.data_dir):
                return self.test_images[:count], ""
            reason = f"{self.data_dir} has none; name their folder by --data-dir or MOMENTUM_DATA"
        except DataError as error:
            reason = str(error)
        return torch.zeros(0, self.pixel_model.length, dtype=torch.uint8), reason

    def prepare(self) -> dict[str, Any]:
        train, validation = self._training
        counts = {"training": len(train), "validation": len(validation), "test": len(self.test_images)}
        origin = {"directory": str(self.data_dir.resolve()), "images": counts, "note": self._set.note}
        return {**origin, "sha256": self._set.digest}

    def batch(self, step: int, shard: int, shards: int) -> Tensor:
        train, _ = self._training
        rows = batch_rows(step, batch_size=self.config.train.batch_size, count=len(train), seed=self.seed)
        return self._dithered(train[rows], step)[shard::shards]

    def validation(self, step: int, shard: int, shards: int) -> Iterator[Tensor]:
        """The same held-out images at every evaluation."""
        return self._parts(self._training[1], shard, shards)

    def test(self, shard: int, shards: int) -> Iterator[Tensor]:
        return self._parts(self.test_images, shard, shards)

    def count(self, batch: Tensor) -> Tensor:
        return torch.tensor(batch.numel())

    def score(self, model: nn.Module, batch: Tensor) -> Score:
        batch = batch.to(self.pixel_model.places.device, non_blocking=True)
        nats = -mixture_log_likelihood(model(batch), batch)
        n = batch.shape[1]
        sums = {
            "bits_per_dim": nats.sum() / math.log(2),
            "bits_per_dim_paper": nats[:, 1:].sum() / math.log(2) * (n / (n - 1)),
        }
        return Score(nats.sum(), torch.tensor(nats.numel(), device=nats.device), sums)

    def tokens_per_step(self) -> int:
        return self.config.train.batch_size * self.pixel_model.length

    def _dithered(self, images: Tensor, step: int) -> Tensor:
        """With bytes between the grey levels that the pictures have: a model shall learn densities, not levels."""
        spread = self.config.data.dither
        if not spread:
            return images
        generator = torch.Generator().manual_seed((self.seed * 10**9 + step) % 2**63)
        noise = (torch.rand(images.shape, generator=generator) - 0.5) * spread
        moved = (images + noise).round().clamp(0, 255).to(torch.uint8)
        return torch.where((images == 0) | (images == 255), images, moved)

    def _flat(self, images: Tensor) -> Tensor:
        return pooled(images, self.config.data.pool).flatten(1)

    def _parts(self, images: Tensor, shard: int, shards: int) -> Iterator[Tensor]:
        yield from images[shard::shards].split(max(1, EVALUATION_BYTES // images.shape[1]))


def save_samples(task: PictureTask, folder: Path) -> tuple[()]:
    """A grid of pictures drawn from nothing; there is nothing to measure."""
    try:
        save_grid(draw_images(task.pixel_model.eval(), count=SAMPLES), task.shape, folder / "grid.png")
    except PictureError as error:
        Console().print(f"no samples: {error}", highlight=False, soft_wrap=True)
    return ()


def _experiment(name: str, title: str, **minutes: str) -> Experiment:
    return Experiment(
        name=name,
        title=title,
        models=(*PICTURE_MODELS, *FAMILY),
        minutes={"tiny": "seconds", **minutes},
        config=partial(picture_config, name),
        task=partial(PictureTask, name),
        samples=save_samples,
        use="momentum generate RUN --out drawn.png",
    )


_GPU = "needs a GPU"
OFFICIAL = (
    _experiment("digits", "Handwritten digits, 8 × 8, no download", small="2 minutes", paper="hours; a GPU is better"),
    _experiment("mnist", "MNIST (Table 2)", small="3 minutes", medium="an hour", paper=_GPU),
    _experiment("fashion", "Fashion-MNIST", small="3 minutes", medium="an hour", paper=_GPU),
    _experiment("cifar10", "CIFAR-10 (Table 3)", small="3 minutes", medium="an hour", paper=_GPU),
)
IMAGES = Experiment(
    name="images",
    title="Pictures of your own",
    models=(*PICTURE_MODELS, *FAMILY),
    minutes={"tiny": "seconds", "small": "4 minutes", "medium": "an hour"},
    config=own_picture_config,
    task=partial(PictureTask, "images"),
    samples=save_samples,
    use="momentum generate RUN --out drawn.png",
)
PICTURES = (*OFFICIAL, IMAGES)
STUDIES = tuple(
    Study(
        experiment.name,
        experiment.title,
        experiment.name,
        tuple(Variant(model) for model in PICTURE_MODELS),
        section="pictures",
    )
    for experiment in OFFICIAL
)
