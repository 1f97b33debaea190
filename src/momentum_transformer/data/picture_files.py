"""Pictures of one's own: PNG and JPEG files in a folder, at any depth, or in a tar archive.

Each is turned the way its camera was held, cut to the square in its middle and brought to one size. Transparent parts
become white. Whatever is no picture, or is not whole, is an error that names the file.
"""

import hashlib
import io
import json
import os
import struct
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..bounded import UNREADABLE, read_bounded
from ..install import install_hint
from .archive import read_archive
from .array_cache import Arrays, cached, identity_of
from .folder import DataError
from .images import ImageSet, Split

SUFFIXES = (".png", ".jpg", ".jpeg")
MOST_PIXELS = 2**24  # of a picture as it is stored: a file of few bytes can claim any number
MOST_BYTES = 2**26  # of a file
MOST_PICTURES = 2**20
MOST_MEMORY = 2**31  # bytes of all pictures together, at their final size
FEWEST = 10
MOST_SAMPLES, SAMPLE_BYTES = 256, 2**20  # files that are read in part to tell pictures from others
ENCODING = 1  # to be raised when the same files should be encoded anew
PNG_END = b"IEND\xaeB`\x82"
BROKEN = (OSError, SyntaxError, ValueError, EOFError, IndexError, TypeError, KeyError, struct.error, zlib.error)


def load_pictures(source: Path, *, size: int, colour: bool) -> ImageSet:
    """All pictures as `size` × `size` pixels, grey or RGB: a tenth of them to test on, the same one in every run."""
    if not source.exists():
        raise DataError(f"there is no folder {source}; check the path")
    if source.suffix.lower() in SUFFIXES and not source.is_dir():
        raise DataError(f"{source} is one file; --source takes a folder of pictures, or a tar archive of them")
    files = _files(source) if source.is_dir() else [source]
    identity = {"encoding": ENCODING, "size": size, "colour": colour, "files": _digest(files)}
    pixels = cached("pictures", identity, lambda: _encode(source, files, size, colour))["pixels"]
    images = torch.from_numpy(pixels.copy()).view(-1, size, size, 3 if colour else 1)
    if len(images) < FEWEST:
        raise DataError(f"{source} has {len(images)} pictures, which are too few; {FEWEST} are the least, more better")
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(1))
    held = len(images) // 10
    parts = (images[order[held:]], images[order[:held]])
    train, test = (Split(part, torch.zeros(len(part), dtype=torch.uint8)) for part in parts)
    return ImageSet("images", train, test, f"{len(images):,} pictures of {source}", _content_digest(source, files))


def _files(folder: Path) -> list[Path]:
    """The pictures in a folder, in a fixed order; hidden files and other kinds are passed over."""
    inside = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith(".")]
    found = [path for path in inside if path.suffix.lower() in SUFFIXES]
    if not found:
        others = f"; other files in it: {len(inside):,}, such as {inside[0].name}" if inside else ""
        raise DataError(f"{folder} has no pictures whose names end in {', '.join(SUFFIXES)}{others}")
    if len(found) > MOST_PICTURES:
        raise DataError(f"{folder} has {len(found):,} pictures; {MOST_PICTURES:,} are the most")
    return found


def _digest(files: list[Path]) -> str:
    return hashlib.sha256(json.dumps(identity_of(*files)).encode()).hexdigest()


def _content_digest(source: Path, files: list[Path]) -> str:
    """What tells these pictures from others, wherever they are: names, sizes, and the beginning of some files.

    Not of the pixels: other versions of pillow decode and shrink a little differently.
    """
    state = hashlib.sha256()
    try:
        for path in files:
            state.update(os.fsencode(path.relative_to(source)) + f" {path.stat().st_size}\n".encode())
        for path in files[:: -(-len(files) // MOST_SAMPLES)]:
            with path.open("rb") as file:
                state.update(file.read(SAMPLE_BYTES))
    except OSError as error:
        raise DataError(f"{source} cannot be read: {error}") from None
    return state.hexdigest()


def _encode(source: Path, files: list[Path], size: int, colour: bool) -> Arrays:
    contents = ((str(path), _content(path)) for path in files) if source.is_dir() else _packed(source)
    pictures: list[np.ndarray] = []
    for name, content in contents:
        pictures.append(read_picture(name, content, size=size, colour=colour).reshape(-1))
        if len(pictures) * pictures[0].size > MOST_MEMORY:
            raise DataError(f"{source} has too many pictures for {size} x {size} pixels each; set data.size lower")
    if not pictures:
        raise DataError(f"{source} has no pictures whose names end in {', '.join(SUFFIXES)}")
    return {"pixels": np.concatenate(pictures)}


def _content(path: Path) -> bytes:
    try:
        _check_bytes(str(path), path.stat().st_size)
        return read_bounded(path, MOST_BYTES)
    except UNREADABLE as error:
        raise DataError(f"{path} cannot be read: {error}") from None


def _packed(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Pictures of a tar archive by name; nothing is unpacked to disk."""
    for count, (name, content) in enumerate(read_archive(archive, _is_picture, MOST_BYTES)):
        if count == MOST_PICTURES:
            raise DataError(f"{archive} has more than {MOST_PICTURES:,} pictures")
        _check_bytes(f"{archive}: {name}", len(content))
        yield f"{archive}: {name}", content


def _is_picture(name: str) -> bool:
    path = Path(name)
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


def _check_bytes(name: str, size: int) -> None:
    if not 0 < size <= MOST_BYTES:
        what = f"has {size:,} bytes; {MOST_BYTES:,} are the most" if size else "is empty"
        raise DataError(f"{name} {what}: take it away, or put a whole picture there")


def read_picture(name: str, content: bytes, *, size: int, colour: bool) -> np.ndarray:
    """(size, size, channels) bytes of one picture."""
    try:
        from PIL import Image, ImageOps, UnidentifiedImageError
    except ModuleNotFoundError:
        raise DataError(f"pictures need pillow: {install_hint('figures')}") from None
    try:
        with warnings.catch_warnings():
            # pillow warns of broken metadata, which we do not use, and of large pictures, which we refuse
            warnings.simplefilter("ignore")
            image: Any = Image.open(io.BytesIO(content), formats=("PNG", "JPEG"))
            if image.format == "PNG" and PNG_END not in content:  # pillow does not miss all of it
                raise EOFError("its end is missing")
            width, height = image.size
            frames = getattr(image, "n_frames", 1) if image.format == "PNG" else 1
            if frames == 1 and width * height <= MOST_PIXELS:
                image.draft("RGB", (2 * size, 2 * size))  # a large JPEG is decoded at a fraction of its size
                fitted = ImageOps.fit(_flat(ImageOps.exif_transpose(image), colour), (size, size))
                return np.asarray(fitted, np.uint8).reshape(size, size, 3 if colour else 1)
    except UnidentifiedImageError:
        raise DataError(f"{name} is not a PNG or JPEG picture; take it away, or convert it") from None
    except Image.DecompressionBombError:
        raise DataError(f"{name} claims more than {MOST_PIXELS:,} pixels; scale it down first") from None
    except BROKEN as error:
        raise DataError(f"{name} is cut off or damaged ({error}); take it away, or get it again") from None
    if frames > 1:
        raise DataError(f"{name} is animated, with {frames} frames; save one of them as a picture")
    raise DataError(f"{name} has {width:,} x {height:,} pixels; {MOST_PIXELS:,} are the most: scale it down first")


def _flat(image: Any, colour: bool) -> Any:
    """Grey or RGB of 8 bits, on white."""
    from PIL import Image

    if image.mode.startswith("I"):  # grey of 16 bits
        image = Image.fromarray((np.asarray(image).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB" if colour else "L")
