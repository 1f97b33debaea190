"""CIFAR-10, the binary or the python version, packed or unpacked, whole or some of its batches."""

import pickle
import re
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

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
                with path.open("rb") as file:
                    yield match[1], _read(file, path, binary=match[2] is not None)
        return
    try:
        with tarfile.open(source) as archive:
            for member in archive:
                match = BATCH.fullmatch(Path(member.name).name)
                content = archive.extractfile(member) if match else None
                if match and content is not None:
                    yield match[1], _read(content, source / member.name, binary=match[2] is not None)
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise DataError(f"{source} is cut off or damaged ({error}); delete it and get it again") from None


def _read(file: IO[bytes], path: Path, *, binary: bool) -> Batch:
    planes, labels = _read_binary(file, path) if binary else _read_python(file, path)
    if labels.max() > 9:
        raise DataError(f"{path} has a label {labels.max()}; labels are 0 to 9")
    return np.ascontiguousarray(planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), labels


def _read_binary(file: IO[bytes], path: Path) -> Batch:
    content = np.frombuffer(file.read(), np.uint8)
    if not len(content) or len(content) % RECORD:
        raise DataError(f"{path} has {len(content):,} bytes, not a whole number of records of {RECORD:,}")
    records = content.reshape(-1, RECORD)
    return records[:, 1:], records[:, 0]


def _read_python(file: IO[bytes], path: Path) -> Batch:
    try:
        values = _Restricted(file, encoding="bytes").load()
        planes = values[b"data"].array
        labels = np.array(values[b"labels"], dtype=np.uint8)
    except DataError as error:
        raise DataError(f"{path} {error}") from None
    except Exception as error:  # a damaged pickle can raise anything
        raise DataError(f"{path} is not a CIFAR-10 batch: {type(error).__name__} {error}") from None
    if planes.ndim != 2 or planes.shape[1] != RECORD - 1 or labels.shape != planes.shape[:1] or not len(labels):
        raise DataError(f"{path} has images of shape {planes.shape} and {labels.size} labels, not (n, 3072) and n")
    return planes, labels


class _Array:
    """Stands for a numpy array in the pickle: takes shape and bytes, and runs nothing."""

    array: np.ndarray

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, content = state
        if not isinstance(dtype, _Type) or dtype.name not in (b"u1", "u1"):
            raise DataError("has an array that is not of bytes")
        self.array = np.frombuffer(bytes(content), np.uint8).reshape(shape, order="F" if fortran else "C")


class _Type:
    """Stands for a numpy dtype."""

    def __init__(self, name: Any, *_: Any) -> None:
        self.name = name

    def __setstate__(self, state: Any) -> None:
        pass


def _array(*_: Any) -> _Array:
    return _Array()


def _encode(text: str, _: str) -> bytes:
    """Bytes, as Python 3 writes them into old pickles."""
    return text.encode("latin-1")


class _Restricted(pickle.Unpickler):
    """Reads a CIFAR-10 batch without running anything that the file names."""

    def find_class(self, module: str, name: str) -> Any:
        module = module.replace("numpy._core", "numpy.core")
        known = {
            ("numpy.core.multiarray", "_reconstruct"): _array,
            ("numpy", "ndarray"): _Array,
            ("numpy", "dtype"): _Type,
            ("_codecs", "encode"): _encode,
        }
        if (module, name) not in known:
            raise DataError(f"asks to run {module}.{name}, which no CIFAR-10 batch needs; it was not run")
        return known[module, name]
