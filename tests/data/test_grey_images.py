"""CIFAR-10 in grey."""

from pathlib import Path

import numpy as np
import pytest

from momentum_transformer.data.grey_images import load_grey_images, to_grey

from .official import official
from .small_sets import write_cifar10


def test_grey_is_the_luma_of_red_green_and_blue() -> None:
    colours = np.array([[0, 0, 0], [255, 255, 255], [255, 0, 0], [0, 255, 0], [0, 0, 255], [10, 200, 90]], np.uint8)
    grey = to_grey(np.broadcast_to(colours[:, None, None], (6, 32, 32, 3)))
    assert grey.shape == (6, 1024)
    assert grey[:, 0].tolist() == [0, 255, 76, 149, 29, 130]
    assert (grey == grey[:, :1]).all()


def test_the_last_tenth_of_training_is_held_out(tmp_path: Path) -> None:
    records = write_cifar10(tmp_path / "cifar10" / "cifar-10-batches-bin")
    splits = load_grey_images(tmp_path)
    train, validation, test = splits.train[0], splits.validation[0], splits.test[0]
    assert (len(train), len(validation), len(test)) == (18, 2, 5)
    assert [*train.labels, *validation.labels, *test.labels] == records[:, 0].tolist()
    planes = records[19, 1:].reshape(3, 32, 32)
    pixels = validation.rows(np.array([1]))[0].reshape(32, 32)
    luma = 0.2989 * planes[0, 3, 7] + 0.587 * planes[1, 3, 7] + 0.114 * planes[2, 3, 7]
    assert pixels[3, 7] == pytest.approx(luma, abs=1)


def test_the_official_images_have_every_class() -> None:
    splits = load_grey_images(official("cifar10").parent)
    assert np.bincount(splits.test[0].labels).tolist() == [1000] * 10
    assert splits.train[0].rows(np.arange(3)).shape == (3, 1024)
