"""Pathfinder32: pictures of 32 × 32 grey pixels, row by row; label 1 where both marked ends belong to one path.

Reads Long Range Arena's layout (`curv_contour_length_14/imgs/<k>/*.png` and `metadata/<k>.npy`, which are lines of
text), unpacked or as a tar archive; draws its own where there are no files.
"""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import numpy as np

from ..bounded import MEGABYTE, UNREADABLE, read_bounded
from .archive import read_archive
from .array_cache import Arrays, cached, identity_of
from .folder import DataError, candidates
from .pathfinder_drawing import SIDE
from .pathfinder_generator import CONTOURS, generate
from .png import read_grey_pngs
from .sequences import Sequences, Splits

PICTURES = 200_000
MOST_BYTES = 16 * MEGABYTE  # of one file
SETS = {"easy": "curv_baseline", "medium": "curv_contour_length_9", "hard": "curv_contour_length_14"}
FOLDERS = ("pathfinder32", "lra_release/pathfinder32", "lra_release/lra_release/pathfinder32")
ENCODING = 1  # to be raised when the same files should be encoded anew


def load_pathfinder(
    root: Path,
    *,
    difficulty: str = "hard",
    count: int = PICTURES,
    generated: bool = False,
    seed: int = 0,
    workers: int | None = None,
) -> Splits:
    """`count` pictures, shuffled the same way in every run, 80 % to train on, 10 % to validate on, 10 % to test on."""
    if difficulty not in SETS or count < 10:
        raise DataError(f"Pathfinder is {', '.join(SETS)}, 10 pictures or more, not {difficulty!r} and {count}")
    source = None if generated else _find(root, SETS[difficulty])
    if source is None:
        made_of = {"encoding": ENCODING, "contour": CONTOURS[difficulty], "count": count, "seed": seed}
        arrays = cached("pathfinder-generated", made_of, lambda: _generate(difficulty, count, seed, workers))
    else:
        listing = source / "metadata" if source.is_dir() else source
        identity = {"encoding": ENCODING, "set": SETS[difficulty], "source": identity_of(listing)}
        arrays = cached("pathfinder", identity, lambda: read_pathfinder(source, SETS[difficulty]))
    available = len(arrays["labels"])
    if available < count:
        raise DataError(
            f"{source} has {available:,} pictures where {count:,} are asked for; ask for fewer (data.examples), "
            "or for our own (data.generated=true)"
        )
    rows = np.random.default_rng(0).permutation(available)[:count]
    whole = Sequences(
        arrays["pixels"], np.arange(available) * SIDE**2, np.full(available, SIDE**2), arrays["labels"], shift=0
    )
    first, second = count * 8 // 10, count * 9 // 10
    parts = (rows[:first], rows[first:second], rows[second:])
    return Splits(*((whole.take(part),) for part in parts))


def _find(root: Path, name: str) -> Path | None:
    """The folder of the set, or an archive that should hold it."""
    for folder in candidates(root, FOLDERS):
        for place in (folder / name, folder / "pathfinder32" / name):
            if place.is_dir():
                return place
        if archives := sorted(folder.glob("pathfinder32*.tar*")):
            return archives[0]
    return root if root.name == name and root.is_dir() else None


def _generate(difficulty: str, count: int, seed: int, workers: int | None) -> Arrays:
    images, labels = generate(count, difficulty=difficulty, seed=seed, workers=workers)
    return {"pixels": images.reshape(-1), "labels": labels}


def read_pathfinder(source: Path, name: str) -> Arrays:
    """All pixels behind each other, and labels, in the order of the metadata."""
    files: Mapping[str, bytes | Path]
    try:
        files = _unpacked(source) if source.is_dir() else _packed(source, name)
        listings = sorted((path for path in files if path.startswith("metadata/")), key=lambda path: (len(path), path))
        if not listings:
            raise DataError(f"{source} has no metadata for {name}: metadata/0.npy and so on name pictures and labels")
        images, labels = [], []
        for listing in listings:
            found, given = _read_listing(files, listing, source)
            images.append(found)
            labels += given
    except UNREADABLE as error:
        raise DataError(f"{source} cannot be read: {error}; delete it and get it again") from None
    return {"pixels": np.concatenate(images).reshape(-1), "labels": np.array(labels)}


def _read_listing(files: Mapping[str, bytes | Path], listing: str, source: Path) -> tuple[np.ndarray, list[int]]:
    """Pictures and labels of one metadata file: folder, file, number, label and more, with spaces between."""
    pictures, labels, named = [], [], set()
    for number, line in enumerate(_content(files[listing]).splitlines(), start=1):
        where = f"{source}/{listing} line {number}"
        fields = line.decode("latin-1").split(" ")
        if len(fields) < 4 or fields[3] not in ("0", "1"):
            raise DataError(f"{where}: expected folder, file, number and label 0 or 1, not {line[:60]!r}")
        path = f"{fields[0]}/{fields[1]}"
        if path not in files:
            raise DataError(f"{where}: there is no {path}")
        if path in named:
            raise DataError(f"{where}: {path} has been named before; a picture has one line")
        named.add(path)
        pictures.append((f"{source}/{path}", _content(files[path])))
        labels.append(int(fields[3]))
    if not pictures:
        raise DataError(f"{source}/{listing} names no pictures")
    return read_grey_pngs(pictures, (SIDE, SIDE)), labels


def _content(file: bytes | Path) -> bytes:
    return read_bounded(file, MOST_BYTES) if isinstance(file, Path) else file


def _unpacked(folder: Path) -> dict[str, bytes | Path]:
    return {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*.*")) if path.is_file()}


def _packed(archive: Path, name: str) -> dict[str, bytes | Path]:
    """The pictures and lists below the set's folder; nothing is unpacked to disk."""

    def wanted(member: str) -> bool:
        path = PurePosixPath(member)
        return name in path.parts and path.suffix in (".png", ".npy")

    files: dict[str, bytes | Path] = {}
    for member, content in read_archive(archive, wanted, MOST_BYTES):
        parts = PurePosixPath(member).parts
        files["/".join(parts[parts.index(name) + 1 :])] = content
    return files
