"""Pairs of papers: bytes literals decoded without running them, each text stored once."""

import ast
import gzip
from pathlib import Path

import numpy as np
import pytest

from momentum_transformer.data.folder import DataError
from momentum_transformer.data.retrieval import load_retrieval, read_pairs

from .official import official

TEXTS = (b"plain", b"both ' and \"", b"\x00\xff\\x41\\\n\t", b"a" * 9000, b"\xe9\\" * 3000)


def row(label: str, first: bytes, second: bytes) -> str:
    return f"{label}\tP01-1001\tW02-2002\t{first!r}\t{second!r}"


def write_rows(folder: Path, *lines: str, part: str = "train") -> Path:
    path = folder / f"new_aan_pairs.{part}.tsv"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.mark.parametrize("text", TEXTS)
def test_texts_are_what_their_literals_stand_for(text: bytes, tmp_path: Path) -> None:
    path = write_rows(tmp_path, row("1.0", text, b"other"))
    assert list(read_pairs(path)) == [(1, text[:4000], b"other")]


def test_pairs_share_their_texts(tmp_path: Path) -> None:
    folder = tmp_path / "aan"
    folder.mkdir()
    write_rows(folder, row("1.0", b"one", b"two"), row("0.0", b"two", b"three"))
    write_rows(folder, row("0.0", b"three", b"one"), part="eval")
    write_rows(folder, row("1.0", b"one", b"one"), part="test")
    splits = load_retrieval(tmp_path)
    first, second = splits.train
    assert len(first.tokens) == len(b"onetwothree")
    assert [bytes((side.rows(np.array([1]))[0] - 1).astype(np.uint8)) for side in (first, second)] == [
        b"two",
        b"three",
    ]
    assert first.labels.tolist() == second.labels.tolist() == [1, 0]
    assert [len(part[0]) for part in (splits.validation, splits.test)] == [1, 1]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1.0\tA\tB\tb'x'", "line 2: expected 5 columns with tabs between, not 4"),
        ("yes\tA\tB\tb'x'\tb'y'", "line 2: the label must be 0 or 1, not 'yes'"),
        ("2.0\tA\tB\tb'x'\tb'y'", "line 2: the label must be 0 or 1, not '2.0'"),
        ("1.0\tA\tB\tb'x'\t__import__('os')", "line 2: a text must be a bytes literal such as b'…', not \"__import__"),
        ("1.0\tA\tB\tb'x'\tb'y", "line 2: a text must be a bytes literal"),
        ("1.0\tA\tB\tb'x'\tb", "line 2: a text must be a bytes literal"),
        ("1.0\tA\tB\tb'x'\t", "line 2: a text must be a bytes literal"),
        ("1.0\tA\tB\tb''\tb'y'", "line 2: a text is empty"),
        (r"1.0	A	B	b'x\xg1'	b'y'", r"line 2: unknown escape"),
        (r"1.0	A	B	b'\N{BULLET}'	b'y'", r"line 2: unknown escape"),
    ],
)
def test_a_wrong_row_is_named_and_nothing_is_run(line: str, message: str, tmp_path: Path) -> None:
    path = write_rows(tmp_path, row("1.0", b"one", b"two"), line)
    with pytest.raises(DataError, match=message):
        list(read_pairs(path))


def test_missing_and_empty_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"the pairs of papers are not in"):
        load_retrieval(tmp_path)
    write_rows(tmp_path, row("1.0", b"one", b"two"))
    with pytest.raises(DataError, match=r"has no new_aan_pairs.eval.tsv and no new_aan_pairs.test.tsv"):
        load_retrieval(tmp_path)
    with pytest.raises(DataError, match="has no rows"):
        list(read_pairs(write_rows(tmp_path)))


def test_the_pairs_that_are_here_are_those_that_python_reads() -> None:
    path = official("aan/new_aan_pairs.eval.tsv.gz")
    ours = list(read_pairs(path))
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    assert len(ours) == len(lines) == 500
    for (label, first, second), line in zip(ours, lines, strict=True):
        fields = line.split("\t")
        assert label == float(fields[0])
        assert first == ast.literal_eval(fields[3])[:4000]
        assert second == ast.literal_eval(fields[4])[:4000]


def test_a_file_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "new_aan_pairs.train.tsv.gz"
    path.write_bytes(gzip.compress(row("1.0", b"one", b"two").encode() * 20)[:-12])
    with pytest.raises(DataError, match="cannot be read"):
        list(read_pairs(path))
