"""Small data sets in the official formats, so that whole experiments run where there is no real data."""

from pathlib import Path

import numpy as np


def write_reviews(folder: Path, count: int = 6) -> None:
    """aclImdb: `count` reviews of each part and label."""
    for part in ("train", "test"):
        for label, rating in (("neg", 2), ("pos", 9)):
            place = folder / part / label
            place.mkdir(parents=True)
            for i in range(count):
                (place / f"{i}_{rating}.txt").write_bytes(f"{part} {label} {i} ".encode() + b"\xff\x00\xe9" * (1 + i))


def write_pairs(folder: Path, count: int = 40) -> None:
    """Pairs of papers of different lengths."""
    folder.mkdir(parents=True)
    texts = [bytes(f"paper {i} ", "ascii") * (1 + i) for i in range(20)]
    for part in ("train", "eval", "test"):
        rows = (f"{i % 2}.0\tA{i}\tB{i}\t{texts[i % 20]!r}\t{texts[(3 * i + 1) % 20]!r}\n" for i in range(count))
        (folder / f"new_aan_pairs.{part}.tsv").write_text("".join(rows))


def write_cifar10(folder: Path, train: int = 20, test: int = 5) -> np.ndarray:
    """Batches of CIFAR-10 in the binary format, of noise; returns the records."""
    folder.mkdir(parents=True)
    records = np.random.default_rng(0).integers(0, 256, (train + test, 3073), dtype=np.uint8)
    records[:, 0] %= 10
    records[:, 1:].reshape(-1, 3, 1024)[:, :, :5] = 0  # some black pixels
    records[:train].tofile(folder / "data_batch_1.bin")
    records[train:].tofile(folder / "test_batch.bin")
    return records


def write_arena(root: Path) -> Path:
    """All that Long Range Arena needs and that is not generated."""
    write_reviews(root / "imdb" / "aclImdb", count=1400)
    write_pairs(root / "aan")
    write_cifar10(root / "cifar10" / "cifar-10-batches-bin", train=60, test=20)
    return root
