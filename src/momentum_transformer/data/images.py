"""Pictures as bytes, for drawing them pixel by pixel: which sets there are, and how a training set is divided."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .array_cache import digest_of_arrays
from .cifar10 import find_cifar10, load_cifar10
from .digits import load_digits
from .folder import data_root
from .idx import FASHION, MNIST, find_idx, load_idx

# images of the official training and test sets
OFFICIAL = {
    "digits": (1_500, 297),
    "mnist": (60_000, 10_000),
    "fashion": (60_000, 10_000),
    "cifar10": (50_000, 10_000),
}


class Split(NamedTuple):
    images: Tensor  # (n, height, width, channels)  bytes
    labels: Tensor  # (n,)  bytes


@dataclass(frozen=True)
class ImageSet:
    name: str
    train: Split
    test: Split
    note: str  # empty, or what is missing from the official set
    digest: str  # what tells these images from others


def load_images(name: str, data_dir: Path | None = None) -> ImageSet:
    """The set by name: `digits` comes with the package, the others are read from `data_dir` or downloaded into it."""
    root = data_root(data_dir)
    match name:
        case "digits":
            arrays = load_digits()
        case "mnist":
            arrays = load_idx(MNIST, root)
        case "fashion":
            arrays = load_idx(FASHION, root)
        case "cifar10":
            arrays = load_cifar10(root)
        case _:
            raise ValueError(f"unknown images {name!r}; known: {', '.join(OFFICIAL)}")
    train, test = _split(*arrays[:2]), _split(*arrays[2:])
    missing = [
        f"{len(split.images):,} of {whole:,} {kind} images"
        for kind, split, whole in zip(("training", "test"), (train, test), OFFICIAL[name], strict=True)
        if len(split.images) != whole
    ]
    return ImageSet(name, train, test, f"a subset: {', '.join(missing)}" if missing else "", digest_of_arrays(arrays))


def is_here(name: str, data_dir: Path | None = None) -> bool:
    """Whether a set can be read without a download."""
    root = data_root(data_dir)
    match name:
        case "digits":
            return True
        case "cifar10":
            return find_cifar10(root) is not None
    return find_idx(FASHION if name == "fashion" else MNIST, root) is not None


def _split(images: np.ndarray, labels: np.ndarray) -> Split:
    images = images if images.ndim == 4 else images[..., None]
    return Split(torch.from_numpy(images.copy()), torch.from_numpy(labels.copy()))


def hold_out(count: int, wanted: int) -> tuple[Tensor, Tensor]:
    """Which of `count` training images to train on and which to validate on: the same ones in every run.

    At most a tenth is held out, so that a subset keeps most of its images for training.
    """
    if count < 2 or wanted < 1:
        raise ValueError(f"a validation split needs 2 images or more and 1 held out, not {count} and {wanted}")
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    held = max(1, min(wanted, count // 10))
    return order[held:], order[:held]


def pooled(images: Tensor, size: int) -> Tensor:
    """Images with each `size` × `size` block averaged to one pixel."""
    n, height, width, channels = images.shape
    if size < 1 or height % size or width % size:
        raise ValueError(f"images of {height} x {width} pixels cannot be pooled in blocks of {size} x {size}")
    if size == 1:
        return images
    blocks = images.view(n, height // size, size, width // size, size, channels)
    return blocks.to(torch.float32).mean((2, 4)).round().to(torch.uint8)
