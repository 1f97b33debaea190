"""A text as one row of tokens: every token is scored once, documents are told apart, what is for the test is last."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from momentum_transformer.data import plain_text
from momentum_transformer.data.folder import DataError
from momentum_transformer.data.packed_text import PackedText, learn_units, load_packed
from momentum_transformer.data.plain_text import read_documents, shakespeare_file, text_files
from momentum_transformer.data.units import Bytes, Characters, Pieces, load_units, save_units

from .official import official

WORDS = "the cat sat on the mat, and the dog sat on the cat: süß, 東京! "


def packed(text: str) -> PackedText:
    return PackedText(Bytes().encode(text), np.array([0]), "")


def test_validation_comes_first_and_the_training_text_ends_where_the_test_begins() -> None:
    parts = packed("x" * 1000).split(0.05)
    assert parts == {"training": range(50, 900), "validation": range(50), "test": range(900, 1000)}
    assert [len(part) for part in packed("abc").split(0.1).values()] == [3, 0, 0]


def test_pieces_are_learned_from_training_text_alone(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("held" * 10 + "train" * 180 + "test" * 10 + "last" * 15)  # 40 + 900 + 100 characters
    units = learn_units([path], separator="", pieces=260, characters=False, validation=0.04)
    learned = b"".join(units.tokens[256:])
    assert b"train" in learned
    assert not set(b"hdls") & set(learned)


def test_windows_have_every_token_as_a_target_once() -> None:
    text = PackedText(np.arange(40, dtype=np.uint8), np.array([0]), "")
    found = text.windows(range(10, 33), 5).tokens
    assert found[:, 1:].flatten().tolist() == list(range(11, 31))
    assert torch.equal(found[1:, 0], found[:-1, -1])


def test_random_windows_follow_from_the_seed_and_reach_both_ends() -> None:
    text = PackedText(np.arange(10, dtype=np.uint8), np.array([0]), "")
    rows = text.random_windows(range(10), 200, 4, seed=3).tokens
    assert torch.equal(rows, text.random_windows(range(10), 200, 4, seed=3).tokens)
    assert not torch.equal(rows, text.random_windows(range(10), 200, 4, seed=4).tokens)
    assert (rows.diff() == 1).all()
    assert set(rows[:, 0].tolist()) == set(range(6))


def test_windows_say_where_documents_begin(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("first|second||third")
    (tmp_path / "b.txt").write_text("fourth")
    files = text_files([tmp_path])
    text = load_packed(files, Bytes(), separator="|")
    assert bytes(text.tokens) == b"firstsecondthirdfourth"
    assert text.starts.tolist() == [0, 5, 11, 16]
    windows = text.windows(range(1, 22), 5)
    assert windows.begins is not None
    at = [(1 + 5 * row + column) for row, column in windows.begins.nonzero().tolist()]
    assert sorted(set(at)) == [5, 11, 16]
    assert packed("one").windows(range(3), 1).begins is None


def test_files_may_be_packed_and_folders_are_read_by_name(tmp_path: Path) -> None:
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"zwei"))
    (tmp_path / "a.txt").write_text("\ufeffeins", encoding="utf-8")
    (tmp_path / "notes.md").write_text("no")
    assert list(read_documents(text_files([tmp_path]))) == ["eins", "zwei"]
    (tmp_path / "tinyshakespeare").mkdir()
    (tmp_path / "tinyshakespeare" / "input.txt.gz").write_bytes(gzip.compress(b"To be"))
    assert list(read_documents([shakespeare_file(tmp_path)])) == ["To be"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b" \n\n ", "is empty"),
        (b"ELF\x00\x01\x02", "byte 3 is zero, which no UTF-8 text has; it looks binary"),
        ("text".encode("utf-16"), "it looks like UTF-16: iconv -f utf-16"),
        ("schön\n".encode() + "schön\n".encode("latin1"), r"line 2: not UTF-8 \(byte 0xf6\).*iconv"),
        (gzip.compress(b"a text " * 999)[:-20], "is cut off in the middle of its gzip data"),
        (b"\x1f\x8bnot packed", "cannot be read"),
    ],
    ids=["empty", "blank", "binary", "utf-16", "mixed", "cut off", "no gzip"],
)
def test_a_text_that_is_none_is_said_in_one_line(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "my.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as error:
        list(read_documents([path]))
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)


def test_a_packed_file_is_not_unpacked_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_text, "MOST", 2**22)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(bytes([32]) * 2**26))
    with pytest.raises(DataError, match="holds more than 4 MB"):
        list(read_documents([tmp_path / "bomb.gz"]))


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no file .*nowhere\.txt"):
        text_files([tmp_path / "nowhere.txt"])
    with pytest.raises(DataError, match=r"has no \.txt"):
        text_files([tmp_path])
    with pytest.raises(DataError, match=r"tiny Shakespeare is not in .*--data-dir"):
        shakespeare_file(tmp_path)


def test_tokens_come_from_the_cache_until_the_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOMENTUM_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "a.txt"
    path.write_text("one text")
    first = load_packed([path], Bytes(), separator="")
    assert isinstance(first.tokens, np.memmap)
    monkeypatch.setattr("momentum_transformer.data.packed_text.read_documents", lambda *a, **k: 1 / 0)
    assert load_packed([path], Bytes(), separator="").digest == first.digest
    monkeypatch.undo()
    path.write_text("another text")
    assert load_packed([path], Bytes(), separator="").digest != first.digest


@pytest.mark.parametrize("kind", ["bytes", "characters", "pieces"])
def test_units_lose_nothing_and_survive_their_file(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text(WORDS * 9, encoding="utf-8")
    pieces, characters = (280 if kind == "pieces" else 0), kind == "characters"
    units = learn_units([path], separator="", pieces=pieces, characters=characters, validation=0.0)
    save_units(units, tmp_path / "vocabulary.json")
    for known in (units, load_units(tmp_path / "vocabulary.json")):
        numbers = known.encode(WORDS)
        assert b"".join(known.tokens[i] for i in numbers).decode() == WORDS
    size = {"bytes": 256, "characters": len(set(WORDS)), "pieces": 280}
    assert len(units.tokens) == size[kind]


def test_pieces_are_the_frequent_ones_and_follow_from_the_text() -> None:
    units = Pieces.learn([WORDS * 9], 270)
    assert b" the" in units.tokens
    assert Pieces.learn([WORDS * 9], 270).merges == units.merges
    assert len(units.encode(WORDS)) < len(Bytes().encode(WORDS))
    assert (
        b"".join(units.tokens[i] for i in units.encode("never seen: \U0001f600")).decode() == "never seen: \U0001f600"
    )
    with pytest.raises(DataError, match=r"has only \d+ pieces that come more than once"):
        Pieces.learn(["abab"], 300)


def test_a_character_outside_the_vocabulary_is_named() -> None:
    units = Characters.of(["abc", "xyz"])
    with pytest.raises(DataError, match=r"'é' \(character 2\) is not in the vocabulary, the 6 characters"):
        units.encode("aéb")


def test_a_damaged_vocabulary_is_said(tmp_path: Path) -> None:
    for content in ("{", '{"units": "characters"}', "[]"):
        (tmp_path / "vocabulary.json").write_text(content)
        with pytest.raises(DataError, match="vocabulary of the run"):
            load_units(tmp_path / "vocabulary.json")
    (tmp_path / "vocabulary.json").write_text('{"units": "syllables"}')
    with pytest.raises(DataError, match="syllables"):
        load_units(tmp_path / "vocabulary.json")


def test_the_official_text_is_whole() -> None:
    (text,) = read_documents([shakespeare_file(official("tinyshakespeare").parent)])
    assert (len(text), len(text.encode())) == (1_115_394, 1_115_394)  # its bytes are its characters
