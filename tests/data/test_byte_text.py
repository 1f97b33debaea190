"""A text as bytes: every byte is scored once, and what is for the test is at its end."""

import gzip
from pathlib import Path

import pytest
import torch

from momentum_transformer.data.byte_text import load_bytes, load_shakespeare, random_windows, windows
from momentum_transformer.data.folder import DataError

from .official import official


@pytest.mark.parametrize("packed", [True, False])
def test_the_last_tenth_is_the_test_and_validation_comes_before_it(packed: bool, tmp_path: Path) -> None:
    content = bytes(range(200)) * 5
    (tmp_path / "tinyshakespeare").mkdir()
    path = tmp_path / "tinyshakespeare" / ("input.txt.gz" if packed else "input.txt")
    path.write_bytes(gzip.compress(content) if packed else content)
    text = load_shakespeare(tmp_path, validation=0.05)
    assert [len(part) for part in text[:3]] == [850, 50, 100]
    assert bytes(torch.cat(text[:3]).tolist()) == content


def test_windows_have_every_byte_as_a_target_once() -> None:
    text = torch.arange(23, dtype=torch.uint8)
    found = windows(text, 5)
    assert found[:, 1:].flatten().tolist() == list(range(1, 21))
    assert torch.equal(found[1:, 0], found[:-1, -1])


def test_random_windows_follow_from_the_seed_and_reach_both_ends() -> None:
    text = torch.arange(10, dtype=torch.uint8)
    rows = random_windows(text, 200, 4, seed=3)
    assert torch.equal(rows, random_windows(text, 200, 4, seed=3))
    assert not torch.equal(rows, random_windows(text, 200, 4, seed=4))
    assert (rows.diff() == 1).all()
    assert set(rows[:, 0].tolist()) == set(range(6))


def test_a_missing_short_or_damaged_text_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"tiny Shakespeare is not in .*--data-dir"):
        load_shakespeare(tmp_path, validation=0.1)
    (tmp_path / "short.txt").write_text("abc")
    with pytest.raises(DataError, match="too few"):
        load_bytes(tmp_path / "short.txt", validation=0.1)
    (tmp_path / "broken.gz").write_bytes(b"not packed")
    with pytest.raises(DataError, match="cannot be read"):
        load_bytes(tmp_path / "broken.gz", validation=0.1)


def test_the_official_text_is_whole() -> None:
    text = load_shakespeare(official("tinyshakespeare").parent, validation=0.03)
    assert sum(len(part) for part in text[:3]) == 1_115_394
