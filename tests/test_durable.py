"""Files that are replaced in one step."""

import os
from pathlib import Path

import pytest

from momentum_transformer.durable import HeldError, hold, replace_file


def test_two_processes_that_replace_one_file_do_not_disturb_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.html"

    def write(temporary: Path) -> None:
        temporary.write_text("ours")
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: 1)
            replace_file(path, lambda other: other.write_text("theirs"))

    replace_file(path, write)
    assert path.read_text() == "ours"
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_dead_process_left_of_a_file_is_removed_with_the_next(tmp_path: Path) -> None:
    path = tmp_path / "a[b].html"
    for name in ("a[b].html.4194305.writing", "a[b].html.other.writing", "b.html.4194305.writing"):
        (tmp_path / name).write_text("half")
    replace_file(path, lambda temporary: temporary.write_text("whole"))
    assert {file.name for file in tmp_path.iterdir()} == {
        *("a[b].html", "a[b].html.other.writing", "b.html.4194305.writing")
    }


def test_a_lock_whose_note_is_no_text_is_held_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "owner.lock"
    with hold(path, "a process"):
        path.write_bytes(b"\xff\xfe")
        with pytest.raises(HeldError):
            hold(path, "another").__enter__()
