"""Readers of data of one's own: tables, folders and archives of pictures, lines from standard input."""

import gzip
import io
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from momentum_transformer.commands.lines import line_batches
from momentum_transformer.data import picture_files
from momentum_transformer.data.png import write_grey_png
from momentum_transformer.data.table_file import read_table

from .mutations import any_bytes, json_lines, packed, png_chunks, tar, tar_headers
from .workers import Parser

CSV = b'\xef\xbb\xbftext,label\r\n"one, ""two""\nthree",a\r\nfour,b\r\n'
TSV = b"text\tlabel\none two\ta\nthree\tb\n"
OBJECTS = b'{"text": "one", "label": "a"}\n{"text": 2.5, "label": true}\n'
GREY = write_grey_png((np.arange(1024).reshape(32, 32) % 251).astype(np.uint8))


def jpeg() -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(np.arange(768, dtype=np.uint8).reshape(16, 16, 3)).save(buffer, "JPEG", quality=50)
    return buffer.getvalue()


def _written(name: str, read: Callable[[Path], Any]) -> Callable[[bytes, Path], None]:
    def run(content: bytes, folder: Path) -> None:
        (folder / name).write_bytes(content)
        read(folder / name)

    return run


def _table(path: Path) -> None:
    list(read_table(path, ("text", "label")))


def _picture(content: bytes, _: Path) -> None:
    found = picture_files.read_picture("picture", content, size=4, colour=True)
    assert found.shape == (4, 4, 3)


def _pictures(path: Path) -> None:
    picture_files._encode(path, [path], 4, colour=False)


def _lines(content: bytes, _: Path) -> None:
    kept = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.BytesIO(content)))
    try:
        for batch in line_batches(None, 3):
            assert 0 < len(batch) <= 3
    finally:
        sys.stdin = kept


def _long_lines(random: Random, seeds: Any) -> bytes:
    """Any damage; now and then a line without an end."""
    if random.random() < 0.002:
        return b"x" * 3_000_000
    return any_bytes(random, seeds)


def own_data_parsers() -> list[Parser]:
    photograph = jpeg()
    pictures = {"a/1.png": GREY, "a/2.jpg": photograph, "notes.txt": b"x"}
    return [
        Parser("CSV", [CSV], any_bytes, _written("rows.csv", _table)),
        Parser("TSV", [TSV], any_bytes, _written("rows.tsv", _table)),
        Parser("JSON lines", [OBJECTS], json_lines, _written("rows.jsonl", _table)),
        Parser("CSV.gz", [CSV], packed(any_bytes), _written("rows.csv.gz", _table)),
        Parser("picture: PNG", [GREY], png_chunks, _picture),
        Parser("picture: JPEG", [photograph], any_bytes, _picture),
        Parser("tar of pictures", [tar(pictures)], tar_headers, _written("pictures.tar", _pictures)),
        Parser(
            "tar.gz of pictures",
            [tar(pictures)],
            packed(tar_headers),
            _written("pictures.tar.gz", _pictures),
        ),
        Parser("standard input", [b"one\ntwo\r\nthree \xc3\xa9\n"], _long_lines, _lines),
    ]


def bomb() -> bytes:
    """A table of 300 kB that unpacks to a line of 300 MB."""
    return gzip.compress(b"text,label\n") + gzip.compress(b"x" * 2**20, 9) * 300
