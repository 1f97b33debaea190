"""Tables of one's own: the same rows from every format, and one line for whatever is wrong with a file."""

import gzip
import json
from pathlib import Path

import pytest

from momentum_transformer.data import labelled_text
from momentum_transformer.data.folder import DataError
from momentum_transformer.data.labelled_text import LabelledText, load_labelled_text
from momentum_transformer.data.table_file import read_table

CSV = 'text,label\nred,a\n"blue, very\nblue",b\n'


def read(path: Path, content: str | bytes, *columns: str) -> list[tuple[int, tuple[str, ...]]]:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return [(row.line, row.cells) for row in read_table(path, columns or ("text", "label"))]


def load(path: Path, rows: list[tuple[str, str]], length: int = 32) -> LabelledText:
    path.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows))
    return load_labelled_text(path, text="text", label="label", length=length)


def test_every_format_gives_the_same_rows(tmp_path: Path) -> None:
    lines = [{"label": "a", "text": "ein Öl", "more": 1}, {"text": "zwei", "label": "b"}]
    rows = [("ein Öl", "a"), ("zwei", "b")]
    texts = {
        "t.csv": "label,text\na,ein Öl\nb,zwei\n",
        "t.tsv": "\ufefflabel\ttext\r\na\tein Öl\r\nb\tzwei",
        "t.jsonl": "".join(json.dumps(line) + "\n" for line in lines) + "\n\n",
    }
    for name, content in texts.items():
        assert [cells for _, cells in read(tmp_path / name, content)] == rows
        packed = gzip.compress(content.encode())
        assert [cells for _, cells in read(tmp_path / f"{name}.gz", packed)] == rows


def test_a_quoted_field_may_have_several_lines_and_rows_know_where_they_begin(tmp_path: Path) -> None:
    assert read(tmp_path / "t.csv", CSV + "green,c\n") == [
        (2, ("red", "a")),
        (3, ("blue, very\nblue", "b")),
        (5, ("green", "c")),
    ]


def test_tabs_separate_and_quotes_are_letters_in_tsv(tmp_path: Path) -> None:
    assert read(tmp_path / "t.tsv", 'text\tlabel\n"so\ta\n') == [(2, ('"so', "a"))]


def test_columns_without_names_go_by_number(tmp_path: Path) -> None:
    assert read(tmp_path / "t.csv", "a,red\nb,blue\n", "2", "1") == [(1, ("red", "a")), (2, ("blue", "b"))]
    assert read(tmp_path / "t.csv", "1,2\nb,blue\n", "2", "1") == [(2, ("blue", "b"))]


def test_labels_of_json_may_be_numbers(tmp_path: Path) -> None:
    content = '{"text": "x", "label": 3}\n{"text": "y", "label": true}\n'
    assert [cells[1] for _, cells in read(tmp_path / "t.jsonl", content)] == ["3", "true"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.txt", "a", r"which kind of table\? its name must end in \.csv, \.tsv, \.jsonl"),
        ("t.csv", "", "t.csv is empty"),
        ("t.csv", "text,label\n", "t.csv has no rows"),
        ("t.csv", "words,label\nx,a\n", "has no column 'text'; it has 'words', 'label'"),
        ("t.csv", "text,text,label\nx,y,a\n", "2 columns are named 'text'"),
        ("t.csv", "text;label\nx;a\n", "line 1: 'text;label' has semicolons between columns"),
        ("t.csv", "text,label\nx,a,b\n", "line 2: 3 columns where the first line has 2"),
        ("t.tsv", "text\tlabel\nx\n", "line 2: 1 column where the first line has 2"),
        ("t.csv", "text,label\nx,a\n\ny,b\n", "line 3: the line is empty"),
        ("t.csv", "text,label\nx,a\n ,b\n", "line 3: text is empty"),
        ("t.csv", "text,label\nx,\n", "line 2: label is empty"),
        ("t.csv", b"text,label\nx,a\ncaf\xe9,b\n", r"line 3: not UTF-8 \(byte 0xe9\)"),
        ("t.csv", "text,label\nx,a\n".encode("utf-16"), "line 1: this is UTF-16"),
        ("t.csv", b"text,label\nx\0y,a\n", "line 2: a NUL byte"),
        ("t.csv", 'text,label\nx,a\n"y,b\n', "line 3: a field without an end"),
        ("t.csv", 'text,label\n"x"y,a\n', "line 2: "),
        ("t.csv", "text,label\n" + "x" * 140_000 + ",a\n", "line 2: a field without an end, or of more than 131,072"),
        ("t.tsv", "text\tlabel\n" + "x" * 1_100_000 + "\ta\n", "line 2: more than 1,048,576 bytes"),
        ("t.jsonl", '{"text": "x", "label": "a"}\n[1]\n', r"line 2: not an object such as {\"text\": …} but '\[1\]'"),
        ("t.jsonl", '{"text": "x", "label": "a"}\nx\n', r"line 2: not JSON \(Expecting value\)"),
        ("t.jsonl", "[" * 100_000, "line 1: not JSON"),
        ("t.jsonl", '{"text": "x", "lable": "a"}\n', "line 1: no 'label'; it has 'text', 'lable'"),
        ("t.jsonl", '{"text": ["x"], "label": "a"}\n', r"line 1: text must be a text or a number, not \[\"x\"\]"),
        ("t.jsonl", '{"text": "\\ud800", "label": "a"}\n', "line 1: half a character"),
        ("t.csv.gz", b"text,label\n", r"t\.csv\.gz cannot be read: its name ends with"),
    ],
    ids=lambda value: None if isinstance(value, bytes) or len(value) > 60 else value[:30],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read(tmp_path / name, content)
    assert str(tmp_path / name) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_every_row_is_in_one_split_and_every_label_in_all(tmp_path: Path) -> None:
    rows = [(f"text {i}", "rare" if i % 50 == 0 else "often") for i in range(200)]
    table = load(tmp_path / "t.csv", rows)
    assert table.labels == ("often", "rare")
    found = {name: part[0] for name, part in vars(table.splits).items()}
    assert {name: len(part) for name, part in found.items()} == {"train": 158, "validation": 21, "test": 21}
    assert sorted(start for part in found.values() for start in part.starts.tolist()) == sorted(
        sum(len(text) for text, _ in rows[:i]) for i in range(200)
    )
    for part in found.values():
        assert set(part.labels.tolist()) == {0, 1}


def test_the_split_and_the_numbers_of_labels_never_change(tmp_path: Path) -> None:
    rows = [(f"text {i}", str(10 - i % 4)) for i in range(40)]
    first, again = load(tmp_path / "a.csv", rows), load(tmp_path / "b.csv", rows)
    assert first.labels == again.labels == ("7", "8", "9", "10")
    assert first.splits.test[0].starts.tolist() == again.splits.test[0].starts.tolist()
    text = first.splits.train[0]
    for i in range(len(text)):
        start, length = int(text.starts[i]), int(text.lengths[i])
        word = bytes(text.tokens[start : start + length]).decode()
        assert rows[int(word.split()[1])][1] == first.labels[int(text.labels[i])]


def test_texts_are_cut_to_so_many_bytes(tmp_path: Path) -> None:
    table = load(tmp_path / "t.csv", [("ä" * 20, "ab"[i % 2]) for i in range(8)], length=7)
    assert set(table.splits.train[0].lengths.tolist()) == {7}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("x", "a")] * 9, "has one label only, 'a': there is nothing to tell apart"),
        ([("x", "a")] * 5 + [("y", "b")], "line 7: the label 'b' occurs once; it needs 3 rows"),
        ([("x", "a")] * 5 + [("y", "b")] * 2, "line 7: the label 'b' occurs twice"),
        ([("x", "a")] * 5 + [("y", "b" * 101)], "line 7: a label of 101 characters"),
        ([("x", "a")] * 5 + [("y", "b\tc")], r"line 7: the label 'b\\tc' has a tab"),
        ([("x", str(i)) for i in range(1001)], "line 1002: label has more than 1,000 different labels"),
    ],
    ids=["one", "once", "twice", "long", "tab", "many"],
)
def test_labels_that_cannot_be_learned_are_named(tmp_path: Path, rows: list[tuple[str, str]], message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        load(tmp_path / "t.csv", rows)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no file .*nowhere\.csv"):
        load_labelled_text(tmp_path / "nowhere.csv", text="text", label="label", length=8)
    with pytest.raises(DataError, match="is a folder, not a table"):
        load_labelled_text(tmp_path, text="text", label="label", length=8)


@pytest.mark.parametrize("limit", ["MOST_ROWS", "MOST_BYTES"])
def test_a_table_larger_than_memory_is_meant_for_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(labelled_text, limit, 4)
    with pytest.raises(DataError, match=r"t\.csv, line [56]: more than .* rows or .* bytes"):
        load(tmp_path / "t.csv", [("x", "ab"[i % 2]) for i in range(8)] if limit == "MOST_ROWS" else [("xy", "a")] * 9)
