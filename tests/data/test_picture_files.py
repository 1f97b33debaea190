"""Pictures of one's own: what is read, and what each thing that is no picture is told."""

import io
import struct
import tarfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from momentum_transformer.data import picture_files
from momentum_transformer.data.folder import DataError
from momentum_transformer.data.picture_files import MOST_BYTES, load_pictures, read_picture
from momentum_transformer.data.png import SIGNATURE, write_grey_png

Image = pytest.importorskip("PIL.Image")


def encoded(array: np.ndarray, kind: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, format=kind, **options)
    return buffer.getvalue()


def ramp(height: int = 12, width: int = 12) -> np.ndarray:
    """Grey that grows from left to right."""
    return np.broadcast_to(np.linspace(0, 240, width).astype(np.uint8), (height, width)).copy()


def folder_of(folder: Path, count: int = 12) -> Path:
    for i in range(count):
        path = folder / f"{i % 3}" / f"{i:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(write_grey_png(np.full((6, 6), 8 * i, np.uint8)))
    return folder


def huge_png(side: int) -> bytes:
    """A file of some bytes that claims side × side pixels."""
    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(b"\0" * 64)), (b"IEND", b""))
    return SIGNATURE + b"".join(
        struct.pack(">I", len(b)) + k + b + struct.pack(">I", zlib.crc32(k + b)) for k, b in parts
    )


def animated_png() -> bytes:
    frames = [Image.fromarray(np.full((6, 6), value, np.uint8)) for value in (0, 100, 200)]
    buffer = io.BytesIO()
    frames[0].save(buffer, format="PNG", save_all=True, append_images=frames[1:])
    return buffer.getvalue()


def test_every_picture_is_in_one_split_and_the_same_one_each_time(tmp_path: Path) -> None:
    source = folder_of(tmp_path, 30)
    first, again = (load_pictures(source, size=4, colour=False) for _ in range(2))
    train, test = (sorted(split.images[:, 0, 0, 0].tolist()) for split in (first.train, first.test))
    assert sorted(train + test) == [8 * i for i in range(30)]
    assert len(test) == 3
    assert again.test.images.equal(first.test.images)


def test_an_archive_holds_the_same_pictures_as_the_folder_it_was_made_of(tmp_path: Path) -> None:
    source = folder_of(tmp_path / "pictures")
    with tarfile.open(tmp_path / "pictures.tar.gz", "w:gz") as archive:
        archive.add(source, "pictures")
    for colour in (False, True):
        parts = [load_pictures(path, size=4, colour=colour) for path in (source, tmp_path / "pictures.tar.gz")]
        unpacked, packed = (sorted(bytes(x) for x in np.concatenate([p.train.images, p.test.images])) for p in parts)
        assert unpacked == packed
        assert len(unpacked) == 12


def test_a_changed_folder_is_read_anew(tmp_path: Path) -> None:
    source = folder_of(tmp_path)
    before = load_pictures(source, size=4, colour=False)
    (source / "0" / "00.png").write_bytes(encoded(np.full((7, 7), 255, np.uint8)))
    after = load_pictures(source, size=4, colour=False)
    whole = [np.concatenate([s.train.images, s.test.images]) for s in (before, after)]
    assert (whole[0] != whole[1]).any()


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
@pytest.mark.parametrize("colour", [False, True])
def test_a_picture_is_cut_to_its_middle_and_resized(kind: str, colour: bool) -> None:
    wide = np.concatenate([np.zeros((8, 8)), np.full((8, 8), 128), np.zeros((8, 8))], 1).astype(np.uint8)
    found = read_picture("it", encoded(wide, kind), size=4, colour=colour)
    assert found.shape == (4, 4, 3 if colour else 1)
    assert abs(found.astype(int) - 128).max() < 12


def test_a_photograph_is_turned_as_its_camera_was_held() -> None:
    tags = Image.Exif()
    tags[0x0112] = 3  # upside down
    content = encoded(ramp(), "JPEG", exif=tags)
    found = read_picture("it", content, size=4, colour=False)
    assert found[0, 0, 0] > found[0, -1, 0] + 100


def test_what_is_transparent_is_white_and_sixteen_bits_are_eight() -> None:
    clear = np.zeros((6, 6, 4), np.uint8)
    assert read_picture("it", encoded(clear), size=2, colour=True).min() == 255
    deep = np.full((6, 6), 0x80FF, np.uint16)
    assert read_picture("it", encoded(deep), size=2, colour=False).tolist() == [[[0x80]] * 2] * 2


def test_colours_of_a_palette_and_of_print_become_rgb() -> None:
    red = np.broadcast_to(np.array([255, 0, 0], np.uint8), (8, 8, 3)).copy()
    for mode, kind in (("P", "PNG"), ("CMYK", "JPEG")):
        buffer = io.BytesIO()
        Image.fromarray(red).convert(mode).save(buffer, format=kind)
        r, g, b = read_picture("it", buffer.getvalue(), size=2, colour=True)[0, 0].tolist()
        assert r > 200
        assert max(g, b) < 60


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"hello, I am no picture", "bad.png is not a PNG or JPEG picture"),
        (b"", "bad.png is empty"),
        (encoded(ramp(64, 64))[:-60], r"bad.png is cut off or damaged \("),
        *((encoded(ramp(64, 64))[:-short], r"bad.png is cut off or damaged \(") for short in (1, 13, 16, 20)),
        (encoded(ramp(64, 64), "JPEG")[:300], r"bad.png is cut off or damaged \("),
        (encoded(ramp(64, 64))[:20], r"bad.png is"),
        (huge_png(5_000), "bad.png has 5,000 x 5,000 pixels; 16,777,216 are the most"),
        (huge_png(2_000_000), "bad.png claims more than 16,777,216 pixels"),
        (animated_png(), "bad.png is animated, with 3 frames"),
        (encoded(ramp(), "GIF"), "bad.png is not a PNG or JPEG picture"),
    ],
    ids=[
        "text",
        "empty",
        "cut png",
        *(f"cut {short}" for short in (1, 13, 16, 20)),
        "cut jpeg",
        "header only",
        "bomb",
        "giant",
        "animated",
        "gif",
    ],
)
def test_what_is_no_whole_picture_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    source = folder_of(tmp_path)
    (source / "bad.png").write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        load_pictures(source, size=4, colour=False)
    assert str(source) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_of_too_many_bytes_is_not_read(tmp_path: Path) -> None:
    source = folder_of(tmp_path)
    with (source / "bad.jpg").open("wb") as file:
        file.truncate(MOST_BYTES + 1)  # takes no place on the disk
    with pytest.raises(DataError, match=r"bad\.jpg has 67,108,865 bytes"):
        load_pictures(source, size=4, colour=False)


def test_a_folder_without_enough_pictures_says_what_it_has(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no folder"):
        load_pictures(tmp_path / "nowhere", size=4, colour=False)
    with pytest.raises(DataError, match=r"has no pictures whose names end in \.png, \.jpg, \.jpeg$"):
        load_pictures(tmp_path, size=4, colour=False)
    (tmp_path / "notes.txt").write_text("words")
    with pytest.raises(DataError, match=r"other files in it: 1, such as notes\.txt"):
        load_pictures(tmp_path, size=4, colour=False)
    with pytest.raises(DataError, match=r"notes\.txt is no tar archive"):
        load_pictures(tmp_path / "notes.txt", size=4, colour=False)
    with pytest.raises(DataError, match="has 9 pictures, which are too few; 10 are the least"):
        load_pictures(folder_of(tmp_path, 9), size=4, colour=False)
    with pytest.raises(DataError, match=r"00\.png is one file; --source takes a folder of pictures"):
        load_pictures(tmp_path / "0" / "00.png", size=4, colour=False)


def test_more_pictures_than_memory_is_meant_for_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture_files, "MOST_MEMORY", 5 * 4 * 4)
    with pytest.raises(DataError, match=r"too many pictures for 4 x 4 pixels each; set data\.size lower"):
        load_pictures(folder_of(tmp_path), size=4, colour=False)
