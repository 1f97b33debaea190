"""MNIST and Fashion-MNIST: four idx files, compressed or not."""

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..bounded import MEGABYTE, UNREADABLE, read_bounded
from .download import Remote, fetch
from .folder import DataError, candidates

UNSIGNED_BYTE = 0x08
MOST_BYTES = 256 * MEGABYTE
MOST_AXES = 3
PARTS = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


class IdxSource(NamedTuple):
    """One data set in this format."""

    title: str
    folders: tuple[str, ...]  # its folder below the data folder; the first is where downloads go
    url: str
    md5: tuple[str, str, str, str]  # of the four compressed files, in the order of PARTS
    first_test_labels: tuple[int, ...]  # the file names are the same in every set: this tells them apart


MNIST = IdxSource(
    "MNIST",
    ("mnist", "MNIST/raw"),
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    (
        "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "d53e105ee54ea40749a09fcbcd1e9432",
        "9fb629c4189551a2d022fa330f9573f3",
        "ec29112dd5afa0611ce80d1b7f02629c",
    ),
    (7, 2, 1, 0, 4, 1, 4, 9),
)
FASHION = IdxSource(
    "Fashion-MNIST",
    ("fashion", "fashion-mnist", "FashionMNIST/raw"),
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    (
        "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "25c81989df183df01b3e8a0aad5dffbe",
        "bef4ecab320f06d8554ea6380940ec79",
        "bb300cfdad3c16e7a12a480ee83cd310",
    ),
    (9, 2, 1, 1, 6, 1, 4, 6),
)


def load_idx(source: IdxSource, root: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training images (n, 28, 28) and labels (n,), then those of the test set, as bytes."""
    paths = find_idx(source, root) or _download(source, root)
    train, train_labels, test, test_labels = (read_idx(path) for path in paths)
    _check_pair(paths[0], train, paths[1], train_labels)
    _check_pair(paths[2], test, paths[3], test_labels)
    for other in (MNIST, FASHION):
        given = tuple(test_labels[: len(other.first_test_labels)])
        if other is not source and given == other.first_test_labels:
            raise DataError(
                f"{paths[3].parent} holds {other.title}, not {source.title}; name its folder by --data-dir"
            )
    return train, train_labels, test, test_labels


def read_idx(path: Path) -> np.ndarray:
    """The array in an idx file of bytes."""
    try:
        content = read_bounded(path, MOST_BYTES)
    except UNREADABLE as error:
        raise DataError(f"{path} cannot be read: {error}; delete it and get it again") from None
    if len(content) < 4 or content[:3] != bytes((0, 0, UNSIGNED_BYTE)):
        raise DataError(f"{path} is not an idx file of bytes: it starts with {content[:4].hex(' ') or 'nothing'}")
    axes = content[3]
    if not 1 <= axes <= MOST_AXES:
        raise DataError(f"{path} has {axes} axes, not 1 to {MOST_AXES}; it is damaged, or other data")
    start = 4 + 4 * axes
    shape = tuple(int.from_bytes(content[at : at + 4], "big") for at in range(4, start, 4))
    if len(content) != start + math.prod(shape):
        raise DataError(
            f"{path} is cut off or damaged: {len(content):,} bytes where its header asks for "
            f"{start + math.prod(shape):,}; delete it and get it again"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _check_pair(images_path: Path, images: np.ndarray, labels_path: Path, labels: np.ndarray) -> None:
    if images.ndim != 3 or labels.ndim != 1:
        raise DataError(
            f"{images_path} has {images.ndim} axes and {labels_path.name} {labels.ndim}, where images have 3 and "
            "labels 1; are the two files swapped?"
        )
    if len(images) != len(labels) or not len(images):
        raise DataError(
            f"{images_path} has {len(images):,} images and {labels_path.name} {len(labels):,} labels; "
            "the two files do not belong together"
        )
    if labels.max() > 9:
        raise DataError(f"{labels_path} has a label {labels.max()}; labels are 0 to 9")
    if images.shape[1:] != (28, 28):
        raise DataError(f"{images_path} has images of {images.shape[1]} x {images.shape[2]} pixels, not 28 x 28")


def find_idx(source: IdxSource, root: Path) -> list[Path] | None:
    """The four files in the first folder that has any of them."""
    for folder in candidates(root, source.folders):
        found = [_variant(folder, part) for part in PARTS]
        missing = [f"{part}.gz" for part, path in zip(PARTS, found, strict=True) if path is None]
        if len(missing) == len(PARTS):
            continue
        if missing and folder == root / source.folders[0]:
            return None  # a download carries on here
        if missing:
            raise DataError(f"{folder} has no {' and no '.join(missing)}; put it there")
        return [path for path in found if path is not None]
    return None


def _variant(folder: Path, part: str) -> Path | None:
    names = (part, f"{part}.gz", part.replace("-idx", ".idx"))
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _download(source: IdxSource, root: Path) -> list[Path]:
    folder = root / source.folders[0]
    found = []
    for part, md5 in zip(PARTS, source.md5, strict=True):
        try:
            found.append(_variant(folder, part) or fetch(Remote(f"{part}.gz", f"{source.url}{part}.gz", md5), folder))
        except DataError as error:
            names = ", ".join(f"{part}.gz" for part in PARTS)
            raise DataError(
                f"{source.title} is not in {root}: put {names} into {folder}, or name their folder by --data-dir "
                f"or MOMENTUM_DATA; {error}"
            ) from None
    return found
