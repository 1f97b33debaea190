"""CIFAR-10 as sequences of 1,024 grey pixels, row by row."""

from pathlib import Path

import numpy as np

from .array_cache import Arrays, cached, identity_of
from .cifar10 import cifar10_source, load_cifar10
from .sequences import Sequences, Splits

PIXELS = 32 * 32
ENCODING = 1  # to be raised when the same files should be encoded anew


def to_grey(images: np.ndarray) -> np.ndarray:
    """(n, 32, 32, 3) → (n, 1024) bytes, rounded as TensorFlow's rgb_to_grayscale rounds, which the benchmark uses."""
    weights = np.array([0.2989, 0.5870, 0.1140], np.float32)
    grey = (images.astype(np.float32) / np.float32(255)) @ weights
    return (grey * np.float32(255.5)).astype(np.uint8).reshape(len(images), -1)


def load_grey_images(root: Path) -> Splits:
    """Nine tenths of the official training images, the last tenth to validate on, and the official test images."""
    identity = {"encoding": ENCODING, "source": identity_of(cifar10_source(root))}
    arrays = cached("grey-images", identity, lambda: _encode(root))
    train, test = (_sequences(arrays[f"{part}-pixels"], arrays[f"{part}-labels"]) for part in ("train", "test"))
    rows = np.arange(len(train))
    first = len(train) * 9 // 10
    return Splits((train.take(rows[:first]),), (train.take(rows[first:]),), (test,))


def _encode(root: Path) -> Arrays:
    train, train_labels, test, test_labels = load_cifar10(root)
    return {
        "train-pixels": to_grey(train).reshape(-1),
        "train-labels": train_labels.astype(np.int64),
        "test-pixels": to_grey(test).reshape(-1),
        "test-labels": test_labels.astype(np.int64),
    }


def _sequences(pixels: np.ndarray, labels: np.ndarray) -> Sequences:
    """A pixel's value is its token: nothing is padded, so 0 needs not be free."""
    rows = np.arange(len(labels))
    return Sequences(pixels, rows * PIXELS, np.full(len(labels), PIXELS), labels, shift=0)
