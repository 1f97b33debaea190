"""CIFAR-10, the binary or the python version, packed or unpacked, whole or some of its batches."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ..bounded import MEGABYTE, UNREADABLE, read_bounded
from .archive import read_archive
from .cifar10_pickle import PickleError, read_pickle
from .download import Remote, fetch
from .folder import DataError, candidates

FOLDER = "cifar10"
ARCHIVE = Remote(
    "cifar-10-binary.tar.gz",
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    "c32a1d4ab5d03f1284b67883e8d87530",
)
UNPACKED = ("cifar-10-batches-bin", "cifar-10-batches-py", ".")
ARCHIVES = (ARCHIVE.name, "cifar-10-python.tar.gz", "*.tar.gz", "*.tar")
BATCH = re.compile(r"(data_batch_[1-5]|test_batch)(\.bin)?")
RECORD = 1 + 3 * 32 * 32  # a label, then a plane of red, one of green, one of blue

MOST_BYTES = 64 * MEGABYTE  # of a batch

Batch = tuple[np.ndarray, np.ndarray]


def load_cifar10(root: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training images (n, 32, 32, 3) and labels (n,), then those of the test set, as bytes."""
    source = cifar10_source(root)
    batches = dict(_batches(source))
    test = batches.pop("test_batch", None)
    if test is None or not batches:
        missing = "test_batch" if test is None else "data_batch"
        raise DataError(f"{source} has no {missing}; CIFAR-10 is data_batch_1 to data_batch_5 and test_batch")
    train = [batches[name] for name in sorted(batches)]
    return np.concatenate([x for x, _ in train]), np.concatenate([y for _, y in train]), *test


def cifar10_source(root: Path) -> Path:
    """The folder of batches or the archive that will be read; downloaded where there is neither."""
    return find_cifar10(root) or _download(root)


def find_cifar10(root: Path) -> Path | None:
    """The folder or archive that has its batches."""
    for folder in candidates(root, (FOLDER,)):
        for name in UNPACKED:
            place = folder / name
            if place.is_dir() and any(BATCH.fullmatch(path.name) for path in place.iterdir()):
                return place
        for pattern in ARCHIVES:
            archives = [path for path in sorted(folder.glob(pattern)) if folder.name == FOLDER or "cifar" in path.name]
            if archives:
                return archives[0]
    return None


def _download(root: Path) -> Path:
    folder = root / FOLDER
    try:
        return fetch(ARCHIVE, folder)
    except DataError as error:
        raise DataError(
            f"CIFAR-10 is not in {root}: put {ARCHIVE.name} or cifar-10-python.tar.gz into {folder}, or name its "
            f"folder by --data-dir or MOMENTUM_DATA; {error}"
        ) from None


def _batches(source: Path) -> Iterator[tuple[str, Batch]]:
    """Each batch by name, from a folder or straight from an archive: nothing is unpacked to disk."""
    if source.is_dir():
        for path in sorted(source.iterdir()):
            if match := BATCH.fullmatch(path.name):
                try:
                    content = read_bounded(path, MOST_BYTES)
                except UNREADABLE as error:
                    raise DataError(f"{path} cannot be read: {error}; delete it and get it again") from None
                yield match[1], _read(content, path, binary=match[2] is not None)
        return
    for name, content in read_archive(source, lambda name: BATCH.fullmatch(Path(name).name) is not None, MOST_BYTES):
        match = BATCH.fullmatch(Path(name).name)
        assert match is not None
        yield match[1], _read(content, source / name, binary=match[2] is not None)


def _read(content: bytes, path: Path, *, binary: bool) -> Batch:
    planes, labels = _read_binary(content, path) if binary else _read_python(content, path)
    if labels.max() > 9:
        raise DataError(f"{path} has a label {labels.max()}; labels are 0 to 9")
    return np.ascontiguousarray(planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), labels


def _read_binary(content: bytes, path: Path) -> Batch:
    if not content or len(content) % RECORD:
        raise DataError(f"{path} has {len(content):,} bytes, not a whole number of records of {RECORD:,}")
    records = np.frombuffer(content, np.uint8).reshape(-1, RECORD)
    return records[:, 1:], records[:, 0]


def _read_python(content: bytes, path: Path) -> Batch:
    try:
        values = read_pickle(content)
        planes, labels = values[b"data"], np.array(values[b"labels"], dtype=np.uint8)
        if not isinstance(planes, np.ndarray):
            raise ValueError("its data is no array")
    except PickleError as error:
        raise DataError(f"{path} {error}") from None
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        raise DataError(f"{path} is not a CIFAR-10 batch: {type(error).__name__} {error}") from None
    if planes.ndim != 2 or planes.shape[1] != RECORD - 1 or labels.shape != planes.shape[:1] or not len(labels):
        raise DataError(f"{path} has images of shape {planes.shape} and {labels.size} labels, not (n, 3072) and n")
    return planes, labels
