"""Handwritten digits, 8 × 8 and real, that come with this package: nothing to download.

`digits.npz` holds what `sklearn.datasets.load_digits` gives (scikit-learn, BSD-3-Clause), which is the test set of
E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning Repository, 1998
(doi:10.24432/C50P49, CC BY 4.0). `digits.md` beside it says so too.
"""

from importlib.resources import files

import numpy as np

LEVELS = 16  # a pixel counts the dots, 0 to 16, of a 4 × 4 block
TEST = 297


def load_digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """1,500 training images (n, 8, 8) and labels (n,), then 297 test images, as bytes: 17 grey levels over 0 … 255.

    There is no official split: here, the last 297 images are the test set.
    """
    with files(__package__).joinpath("digits.npz").open("rb") as file, np.load(file) as stored:
        counts, labels = stored["images"], stored["labels"]
    images = np.round(counts * (255 / LEVELS)).astype(np.uint8)
    return images[:-TEST], labels[:-TEST], images[-TEST:], labels[-TEST:]
