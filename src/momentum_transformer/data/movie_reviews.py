"""Byte-level movie reviews: aclImdb, as its official archive or unpacked. Any byte is legal, UTF-8 or not."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ..bounded import MEGABYTE
from .archive import read_archive
from .array_cache import Arrays, cached, identity_of
from .folder import DataError, candidates
from .sequences import Splits, flatten, unflatten

LENGTH = 4000
MOST_BYTES = 16 * MEGABYTE  # of a review
ENCODING = 1  # to be raised when the same files should be encoded anew
REVIEW = re.compile(r"(?:.*/)?(train|test)/(neg|pos)/(\d{1,9})_(\d{1,9})\.txt")
LABELS = {"neg": 0, "pos": 1}


def load_text(root: Path, *, held_out: int = 2500, validate_on_test: bool = False) -> Splits:
    """Reviews of up to 4,000 bytes. Validation is part of the training set or, as the authors had it, the test set."""
    source = _find(root)
    folders = [source / part / label for part in ("train", "test") for label in LABELS]
    identity = {"encoding": ENCODING, "source": identity_of(*(folders if source.is_dir() else [source]))}
    arrays = cached("text", identity, lambda: _encode(source))
    train, test = unflatten(arrays, "train"), unflatten(arrays, "test")
    if validate_on_test:
        return Splits((train,), (test,), (test,))
    if not 0 < held_out < len(train):
        raise DataError(f"{held_out:,} reviews cannot be held out of {len(train):,}")
    # reviews are in the order of their labels: a seeded shuffle, the same in every run
    order = np.random.default_rng(0).permutation(len(train))
    return Splits((train.take(order[held_out:]),), (train.take(order[:held_out]),), (test,))


def _find(root: Path) -> Path:
    for folder in candidates(root, ("imdb", "text")):
        for place in (folder / "aclImdb", folder):
            if all((place / part / label).is_dir() for part in ("train", "test") for label in LABELS):
                return place
        if archives := sorted(folder.glob("aclImdb*.tar*")):
            return archives[0]
    raise DataError(
        f"aclImdb is not in {root}: put aclImdb_v1.tar.gz (https://ai.stanford.edu/~amaas/data/sentiment/) into "
        f"{root / 'imdb'}, or name its folder by --data-dir or MOMENTUM_DATA"
    )


def _encode(source: Path) -> Arrays:
    reviews: dict[str, list[tuple[int, int, bytes]]] = {"train": [], "test": []}
    for path, content in _members(source):
        match = REVIEW.fullmatch(path)
        if match is None:
            continue
        part, label, number, rating = match[1], match[2], int(match[3]), int(match[4])
        if not content:
            raise DataError(f"{source}: {path} is empty")
        if (rating > 5) != (label == "pos"):
            raise DataError(f"{source}: {path} is rated {rating} of 10, which is not {label}")
        reviews[part].append((LABELS[label], number, content[:LENGTH]))
    arrays: Arrays = {}
    for part, found in reviews.items():
        found.sort()
        labels = [label for label, _, _ in found]
        if set(labels) != {0, 1}:
            missing = " and no ".join(f"{part}/{name}" for name, label in LABELS.items() if label not in labels)
            raise DataError(f"{source} has no {missing}: it is cut off, or not aclImdb")
        arrays |= flatten([content for _, _, content in found], labels, prefix=part)
    return arrays


def _members(source: Path) -> Iterator[tuple[str, bytes]]:
    """Each file by its path inside the data set; nothing is unpacked to disk."""
    if not source.is_dir():
        yield from read_archive(source, lambda name: REVIEW.fullmatch(name) is not None, MOST_BYTES)
        return
    try:
        for path in sorted(source.glob("*/*/*.txt")):
            with path.open("rb") as file:
                yield path.relative_to(source).as_posix(), file.read(LENGTH)
    except OSError as error:
        raise DataError(f"{source} cannot be read: {error}") from None
