"""Grey PNG files against another reader."""

import io
import zlib

import numpy as np
import pytest

from momentum_transformer.data.folder import DataError
from momentum_transformer.data.png import SIGNATURE, read_grey_pngs, write_grey_png

RNG = np.random.default_rng(0)


def smooth(n: int = 8) -> np.ndarray:
    """Pictures that make an encoder use every filter."""
    ramp = np.add.outer(np.arange(32) * 3, np.arange(32) * 5)
    return np.stack([(ramp * i + RNG.integers(0, 1 + 9 * i, (32, 32))) % 256 for i in range(n)]).astype(np.uint8)


def test_what_is_written_is_read_back() -> None:
    images = smooth()
    assert np.array_equal(read_grey_pngs([("", write_grey_png(image)) for image in images], (32, 32)), images)


def test_files_of_another_writer_are_read_with_every_filter() -> None:
    pillow = pytest.importorskip("PIL.Image", reason="pillow is not installed")
    images = smooth(40)
    files, filters = [], set()
    for image in images:
        buffer = io.BytesIO()
        pillow.fromarray(image).save(buffer, "png")
        files.append(("", buffer.getvalue()))
        start = buffer.getvalue().index(b"IDAT") + 4
        filters |= set(zlib.decompressobj().decompress(buffer.getvalue()[start:])[:: 32 + 1])
    assert {1, 2, 4} <= filters
    assert np.array_equal(read_grey_pngs(files, (32, 32)), images)
    with pillow.open(io.BytesIO(write_grey_png(images[3]))) as read:
        assert np.array_equal(np.array(read), images[3])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it starts with nothing"),
        (b"GIF89a..", "it starts with 47 49 46"),
        (SIGNATURE, "unpack"),
        (write_grey_png(np.zeros((8, 8), np.uint8)), "it has 8 x 8 pixels"),
        (write_grey_png(smooth()[5])[:200], "requires a buffer"),
        (write_grey_png(smooth()[5])[:60] + b"x" + write_grey_png(smooth()[5])[61:], "IDAT is damaged"),
    ],
)
def test_anything_else_is_named(content: bytes, message: str) -> None:
    good = write_grey_png(np.zeros((32, 32), np.uint8))
    with pytest.raises(DataError, match=f"sample_1.png is not a grey 8-bit PNG of 32 x 32 pixels: .*{message}"):
        read_grey_pngs([("sample_0.png", good), ("sample_1.png", content)], (32, 32))
