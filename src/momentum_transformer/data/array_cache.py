"""Encoded data as memory-mapped arrays: built once, shared by every process, built again where damaged.

An entry is a folder with one `.npy` file an array and an `index.json` with their checksums. It is written beside its
place and renamed, so that it is whole or absent; its name holds a digest of everything it depends on.
"""

import hashlib
import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..bounded import MEGABYTE, parse_json, read_bounded
from ..durable import alone
from .folder import DataError

Arrays = dict[str, np.ndarray]
MOST_INDEX_BYTES = MEGABYTE


def cache_root() -> Path:
    """$MOMENTUM_CACHE, or the user's cache folder."""
    if given := os.environ.get("MOMENTUM_CACHE"):
        return Path(given)
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "momentum-transformer"


def identity_of(*paths: Path) -> list[list[Any]]:
    """What tells one version of files from another: size and time of change; of a folder, of all the files in it."""
    identity = []
    for path in paths:
        files = [entry.stat() for entry in os.scandir(path)] if path.is_dir() else [path.stat()]
        size, changed = sum(file.st_size for file in files), max((file.st_mtime_ns for file in files), default=0)
        identity.append([_name(path.resolve()), len(files), size, changed])
    return identity


def digest_of_arrays(arrays: Iterable[np.ndarray]) -> str:
    """What tells some arrays from others: sha256 of all of them."""
    state = hashlib.sha256()
    for array in arrays:
        state.update(f"{array.dtype.str} {array.shape}\n".encode())
        state.update(_bytes(array))
    return state.hexdigest()


def _name(path: Path) -> str:
    """As text that every encoding has, also where the name is no text."""
    name = str(path)
    return name if name.isascii() else os.fsencode(name).hex()


def cached(name: str, identity: Mapping[str, Any], build: Callable[[], Arrays]) -> Arrays:
    """The arrays that `build` makes, from the cache if they are there and whole. Read-only."""
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
    folder = cache_root() / f"{name}-{digest}"
    if (arrays := _open(folder)) is not None:
        return arrays
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with alone(folder.with_name(f"{folder.name}.lock")):
            if (arrays := _open(folder)) is None:  # else another process has built it meanwhile
                _write(folder, build(), identity)
                arrays = _open(folder)
    except OSError as error:
        raise DataError(
            f"the cache {folder} cannot be written ({error}); name another place by MOMENTUM_CACHE"
        ) from None
    if arrays is None:
        raise DataError(f"the cache {folder} cannot be read back; is the disk failing?")
    return arrays


def _open(folder: Path) -> Arrays | None:
    """The arrays of an entry, or None where anything about it is not as it was written."""
    try:
        index = parse_json(read_bounded(folder / "index.json", MOST_INDEX_BYTES))
        if index["checksum"] != _index_checksum(index["checksums"]):
            return None
        arrays = {}
        for name, checksum in index["checksums"].items():
            arrays[name] = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
            if _checksum(arrays[name]) != checksum:
                return None
        return arrays
    except Exception:  # numpy can raise anything at a header that it did not write
        return None


def _write(folder: Path, arrays: Arrays, identity: Mapping[str, Any]) -> None:
    for unfinished in folder.parent.glob(f"{folder.name}.*.writing"):  # of processes that died with the lock
        shutil.rmtree(unfinished)
    scratch = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", suffix=".writing", dir=folder.parent))
    try:
        for name, array in arrays.items():
            np.save(scratch / f"{name}.npy", array, allow_pickle=False)
        checksums = {name: _checksum(array) for name, array in arrays.items()}
        index = {"identity": identity, "checksums": checksums, "checksum": _index_checksum(checksums)}
        (scratch / "index.json").write_text(json.dumps(index, indent=1), encoding="utf-8")
        if folder.exists():  # damaged
            shutil.rmtree(folder)
        scratch.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _checksum(array: np.ndarray) -> int:
    return zlib.crc32(_bytes(array))


def _bytes(array: np.ndarray) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _index_checksum(checksums: dict[str, int]) -> int:
    return zlib.crc32(json.dumps(checksums).encode())
