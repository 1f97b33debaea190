"""ListOps: official files, every label right, and a generator that follows the published rules."""

import gzip
import statistics
from pathlib import Path

import numpy as np
import pytest

from momentum_transformer.data.folder import DataError
from momentum_transformer.data.listops import SYMBOLS, load_listops, read_listops, to_text, write_listops
from momentum_transformer.data.listops_evaluation import CLOSE, evaluate_all
from momentum_transformer.data.listops_generator import MAX_ARGUMENTS, MAX_DEPTH, generate

from .official import official

ROW = "( ( ( ( [MED 3 ) 8 ) ( ( ( [SM 6 ) 5 ) ] ) ) ] )"  # MED of 3, 8 and (6 + 5) mod 10


def value(text: str) -> int:
    """Another evaluator: recursion over words, the operators as Python has them."""
    words = [word for word in text.split() if word not in "()"]

    def read() -> int:
        word = words.pop(0)
        if not word.startswith("["):
            return int(word)
        arguments = []
        while words[0] != "]":
            arguments.append(read())
        words.pop(0)
        operators = {
            "[MIN": min,
            "[MAX": max,
            "[MED": lambda x: int(statistics.median(x)),
            "[SM": lambda x: sum(x) % 10,
        }
        return int(operators[word](arguments))

    result = read()
    assert not words
    return result


def generated(count: int, lengths: tuple[int, int] = (20, 200), seed: int = 0) -> tuple[list[bytes], np.ndarray]:
    return generate(count, lengths=lengths, seed=seed, workers=1)


def test_every_label_of_the_official_short_test_set_is_right() -> None:
    path = official("listops/test_d20s.tsv.gz")
    expressions, labels = read_listops(path)  # which checks every label by itself
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    assert len(expressions) == len(lines) == 10_000
    for line, expression, label in zip(lines[:2000], expressions, labels, strict=False):
        assert value(line.split("\t")[1]) == label
        assert [SYMBOLS[token] for token in expression] == [w for w in line.split("\t")[1].split() if w not in "()"]


def test_generated_values_are_those_of_another_evaluator() -> None:
    expressions, labels = generated(500)
    assert [value(to_text(expression)) for expression in expressions] == labels.tolist()


def test_the_seed_decides_and_the_number_of_workers_does_not() -> None:
    one, labels = generate(2500, lengths=(20, 60), seed=7, workers=1)
    two, more_labels = generate(2500, lengths=(20, 60), seed=7, workers=2)
    assert one == two
    assert np.array_equal(labels, more_labels)
    assert generate(2500, lengths=(20, 60), seed=8, workers=1)[0] != one
    assert generate(100, lengths=(20, 60), seed=7, workers=1)[0] == one[:100]


def test_trees_follow_the_published_rules() -> None:
    expressions, _ = generated(2000, (50, 400))
    assert len(set(expressions)) == 2000
    nodes = operators = 0
    kinds, arguments = np.zeros(4), []
    deepest = 0
    for expression in expressions:
        assert 50 < len(expression) < 400
        counts: list[int] = []
        for token in expression:
            if token == CLOSE:
                arguments.append(counts.pop())
                continue
            if counts:
                counts[-1] += 1
            if 0 < len(counts) < MAX_DEPTH - 1:  # neither the root, which is selected, nor what must be a digit
                nodes += 1
                operators += token >= 10
            if token >= 10:
                kinds[token - 10] += 1
                counts.append(0)
                deepest = max(deepest, len(counts))
    assert deepest == MAX_DEPTH - 1
    assert min(arguments) == 2
    assert max(arguments) == MAX_ARGUMENTS
    assert kinds / kinds.sum() == pytest.approx([0.25] * 4, abs=0.02)
    assert operators / nodes == pytest.approx(0.25, abs=0.03)


@pytest.mark.slow
def test_generated_lengths_and_labels_are_those_of_the_published_generator() -> None:
    expressions, labels = generate(8000, lengths=(500, 2000), seed=1)
    assert np.mean([len(expression) for expression in expressions]) == pytest.approx(1034, abs=15)
    shares = np.bincount(labels, minlength=10) / len(labels)
    assert shares[[0, 9]] == pytest.approx([0.17, 0.17], abs=0.015)  # the majority class, 17 %
    assert shares[1:9].max() < 0.11


def test_files_in_the_official_format_are_read_back(tmp_path: Path) -> None:
    expressions, labels = generated(30)
    write_listops(tmp_path / "basic.tsv", expressions, labels)
    assert read_listops(tmp_path / "basic.tsv") == (expressions, labels.tolist())
    assert to_text(read_row(tmp_path, f"{ROW}\t3")) == ROW


def read_row(folder: Path, line: str) -> bytes:
    (folder / "row.tsv").write_text(f"Source\tTarget\n{line}\n")
    return read_listops(folder / "row.tsv")[0][0]


def test_official_files_are_preferred_where_official_lengths_are_asked_for(tmp_path: Path) -> None:
    folder = tmp_path / "listops-1000"
    folder.mkdir()
    for name in ("train", "val", "test"):
        (folder / f"basic_{name}.tsv").write_text(f"Source\tTarget\n{ROW}\t3\n{ROW}\t3\n")
    splits = load_listops(tmp_path, sizes=(2, 1, 1))
    assert [len(part[0]) for part in (splits.train, splits.validation, splits.test)] == [2, 1, 1]
    rows = splits.train[0].rows(np.array([0, 1]))
    assert "".join(SYMBOLS[token - 1] for token in rows[0]) == "[MED38[SM65]]"
    with pytest.raises(DataError, match=r"basic_train.tsv has 2 rows where 96,000 are asked for"):
        load_listops(tmp_path)
    (folder / "basic_val.tsv").unlink()
    with pytest.raises(DataError, match=r"has no basic_val.tsv"):
        load_listops(tmp_path, sizes=(2, 1, 1))


def test_without_files_the_parts_are_generated_and_differ(tmp_path: Path) -> None:
    splits = load_listops(tmp_path, lengths=(10, 40), sizes=(50, 20, 20), workers=1)
    parts = [{bytes(part[0].rows(np.array([i]))[0]) for i in range(len(part[0]))} for part in vars(splits).values()]
    assert [len(part) for part in parts] == [50, 20, 20]
    assert not parts[0] & parts[1]
    assert not parts[0] & parts[2]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("( [MAX 3 ) ]", "line 2: expected an expression and a label with a tab between"),
        ("[MAX 3 ]\t4", "line 2: the label is 4, but the expression's value is 3"),
        ("[MAX 3 ]\t12", "line 2: the label must be a digit, not '12'"),
        ("[MAX 3 ]\t", "line 2: the label must be a digit, not ''"),
        ("[MAX 3 ]\tthree", "line 2: the label must be a digit, not 'three'"),
        ("[MAX 3 12 ]\t3", "line 2: '12' is no token of ListOps"),
        ("[FIRST 3 ]\t3", r"line 2: '\[FIRST' is no token of ListOps"),
        ("[MAX 3 é ]\t3", "line 2: 'é' is no token of ListOps"),
        ("[MAX 3\t3", "line 2: the expression is not one whole list"),
        ("[MAX 3 ] ] [MAX\t3", "line 2: the expression is not one whole list"),
        ("[MAX ]\t3", "line 2: the expression is not one whole list"),
        ("3 4\t3", "line 2: the expression is not one whole list"),
    ],
)
def test_a_wrong_row_is_named(line: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        read_row(tmp_path, line)


@pytest.mark.parametrize("content", [b"", b"Source\tTarget\n"])
def test_an_empty_file_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "basic.tsv").write_bytes(content)
    with pytest.raises(DataError, match="has no rows"):
        read_listops(tmp_path / "basic.tsv")


def test_a_file_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "basic.tsv.gz"
    path.write_bytes(gzip.compress(f"Source\tTarget\n{ROW}\t3\n".encode())[:-10])
    with pytest.raises(DataError, match="cannot be read"):
        read_listops(path)


def test_impossible_bounds_are_refused() -> None:
    with pytest.raises(DataError, match="room between its lengths"):
        generate(10, lengths=(20, 21), seed=0, workers=1)
    with pytest.raises(DataError, match="there are not 12 different expressions"):
        generate(12, lengths=(0, 2), seed=0, workers=1)


def test_expressions_of_one_digit_have_its_value() -> None:
    assert list(evaluate_all([bytes([7]), bytes([7, 7]), bytes([CLOSE])])) == [7, -1, -1]
