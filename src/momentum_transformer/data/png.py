"""Grey PNG files of 8 bits: many of one size read at once, and written. Needs nothing but zlib."""

import struct
import zlib
from collections.abc import Sequence

import numpy as np

from .folder import DataError

MOST_BYTES = 65_536  # of a file
SIGNATURE = b"\x89PNG\r\n\x1a\n"


def read_grey_pngs(files: Sequence[tuple[str, bytes]], size: tuple[int, int]) -> np.ndarray:
    """(n, height, width) bytes of images given as (name, content); an error names the first that is not one."""
    height, width = size
    lines = np.empty((len(files), height, width + 1), np.uint8)
    for i, (name, content) in enumerate(files):
        try:
            lines[i] = _lines(content, size)
        except (ValueError, IndexError, struct.error, zlib.error) as error:
            raise DataError(f"{name} is not a grey 8-bit PNG of {width} x {height} pixels: {error}") from None
    return _unfilter(lines)


def _lines(content: bytes, size: tuple[int, int]) -> np.ndarray:
    """The filtered lines, each behind the number of its filter."""
    if content[:8] != SIGNATURE:
        raise ValueError(f"it starts with {content[:8].hex(' ') or 'nothing'}")
    if len(content) > MOST_BYTES:
        raise ValueError(f"it has {len(content):,} bytes, more than {MOST_BYTES:,}")
    header, data, place = b"", [], 8
    while place < len(content):
        (length,) = struct.unpack_from(">I", content, place)
        kind, body = content[place + 4 : place + 8], content[place + 8 : place + 8 + length]
        (checksum,) = struct.unpack_from(">I", content, place + 8 + length)
        if zlib.crc32(kind + body) != checksum:
            raise ValueError(f"its {kind.decode('latin-1')} is damaged")
        header = body if kind == b"IHDR" else header
        data += [body] if kind == b"IDAT" else []
        place += 12 + length
    width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", header)
    if (height, width) != size:
        raise ValueError(f"it has {width} x {height} pixels")
    if (depth, colour, interlaced) != (8, 0, 0):
        raise ValueError(f"it has {depth} bits, colour type {colour}, interlacing {interlaced}")
    wanted = height * (width + 1)
    lines = np.frombuffer(zlib.decompressobj().decompress(b"".join(data), wanted + 1), np.uint8)
    if lines.size != wanted:
        raise ValueError(f"it holds {'more' if lines.size > wanted else 'fewer'} than {wanted} bytes")
    if lines[:: width + 1].max() > 4:
        raise ValueError(f"it has a filter {lines[:: width + 1].max()}, which there is not")
    return lines.reshape(height, width + 1)


def _unfilter(lines: np.ndarray) -> np.ndarray:
    """Undo the five filters of the format, one pixel of all images at a time."""
    n, height, width = lines.shape[0], lines.shape[1], lines.shape[2] - 1
    filters = lines[:, :, 0]
    pixels = np.zeros((n, height + 1, width + 1), np.int16)  # a line of zeros above, a column of zeros before
    for y in range(height):
        kind = filters[:, y]
        for x in range(width):
            left, above, corner = pixels[:, y + 1, x], pixels[:, y, x + 1], pixels[:, y, x]
            guess = left + above - corner
            distance = np.stack([abs(guess - left), abs(guess - above), abs(guess - corner)])
            paeth = np.choose(distance.argmin(0), (left, above, corner))
            predicted = np.choose(kind, (np.zeros_like(left), left, above, (left + above) // 2, paeth))
            pixels[:, y + 1, x + 1] = (predicted + lines[:, y, x + 1]) & 0xFF
    return pixels[:, 1:, 1:].astype(np.uint8)


def write_grey_png(image: np.ndarray) -> bytes:
    """A PNG file of an image (height, width) of bytes."""
    height, width = image.shape
    lines = np.zeros((height, width + 1), np.uint8)
    lines[:, 1:] = image
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 6)), (b"IEND", b""))
    chunks = (struct.pack(">I", len(b)) + k + b + struct.pack(">I", zlib.crc32(k + b)) for k, b in parts)
    return SIGNATURE + b"".join(chunks)
