"""aclImdb as published, packed or not; reviews are bytes."""

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from momentum_transformer.data.folder import DataError
from momentum_transformer.data.movie_reviews import load_text

from .official import official
from .small_sets import write_reviews


def pack(folder: Path, archive: Path) -> None:
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, "aclImdb")


@pytest.mark.parametrize("packed", [True, False])
def test_reviews_are_read_packed_or_not(packed: bool, tmp_path: Path) -> None:
    write_reviews(tmp_path / "source")
    root = tmp_path / "imdb"
    root.mkdir()
    if packed:
        pack(tmp_path / "source", root / "aclImdb_v1.tar.gz")
    else:
        (tmp_path / "source").rename(root / "aclImdb")
    splits = load_text(tmp_path, held_out=4)
    train, validation, test = splits.train[0], splits.validation[0], splits.test[0]
    assert (len(train), len(validation), len(test)) == (8, 4, 12)
    row = test.rows(np.array([7]))[0]
    assert bytes(row.astype(np.uint8) - 1) == b"test pos 1 " + b"\xff\x00\xe9" * 2  # not UTF-8, and legal
    assert row.max() == 256
    assert test.labels.tolist() == [0] * 6 + [1] * 6


def test_validation_is_held_out_of_training_or_is_the_test_set(tmp_path: Path) -> None:
    write_reviews(tmp_path / "aclImdb")
    ours = load_text(tmp_path, held_out=4)
    assert not set(ours.train[0].starts) & set(ours.validation[0].starts)
    assert ours.train[0].starts.tolist() == load_text(tmp_path, held_out=4).train[0].starts.tolist()
    authors = load_text(tmp_path, validate_on_test=True)
    assert authors.validation == authors.test
    assert len(authors.train[0]) == 12
    with pytest.raises(DataError, match="12 reviews cannot be held out of 12"):
        load_text(tmp_path, held_out=12)


def test_long_reviews_are_cut(tmp_path: Path) -> None:
    write_reviews(tmp_path)
    (tmp_path / "test" / "pos" / "0_9.txt").write_bytes(b"x" * 5000)
    assert load_text(tmp_path, held_out=2).test[0].lengths.max() == 4000


def test_a_changed_review_is_noticed(tmp_path: Path) -> None:
    write_reviews(tmp_path)
    load_text(tmp_path, held_out=2)
    (tmp_path / "test" / "pos" / "0_9.txt").write_bytes(b"another review")
    row = load_text(tmp_path, held_out=2).test[0].rows(np.array([6]))[0]
    assert bytes((row - 1).astype(np.uint8)) == b"another review"


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"aclImdb is not in .* put aclImdb_v1.tar.gz"):
        load_text(tmp_path)
    write_reviews(tmp_path)
    (tmp_path / "train" / "neg" / "9_8.txt").write_text("good")
    with pytest.raises(DataError, match=r"train/neg/9_8.txt is rated 8 of 10, which is not neg"):
        load_text(tmp_path)
    (tmp_path / "train" / "neg" / "9_8.txt").unlink()
    (tmp_path / "train" / "neg" / "9_1.txt").write_text("")
    with pytest.raises(DataError, match=r"train/neg/9_1.txt is empty"):
        load_text(tmp_path)
    for path in (tmp_path / "train" / "neg").iterdir():
        path.unlink()
    with pytest.raises(DataError, match="has no train/neg"):
        load_text(tmp_path)


def test_an_archive_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    write_reviews(tmp_path / "source")
    pack(tmp_path / "source", tmp_path / "aclImdb_v1.tar.gz")
    content = (tmp_path / "aclImdb_v1.tar.gz").read_bytes()
    (tmp_path / "aclImdb_v1.tar.gz").write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match="cut off or damaged"):
        load_text(tmp_path)
    (tmp_path / "aclImdb_v1.tar.gz").write_bytes(io.BytesIO(b"not a tar").read())
    with pytest.raises(DataError, match="cut off or damaged"):
        load_text(tmp_path)


@pytest.mark.slow
def test_the_official_reviews() -> None:
    splits = load_text(official("imdb").parent)
    train, validation, test = splits.train[0], splits.validation[0], splits.test[0]
    assert (len(train), len(validation), len(test)) == (22_500, 2_500, 25_000)
    assert test.labels.mean() == 0.5
    assert int(train.lengths.sum() + validation.lengths.sum()) < 25_000 * 4000
    assert train.lengths.max() == 4000
