"""Files that are replaced in one step."""

import os
import threading
from pathlib import Path

import pytest

from momentum_transformer.durable import HeldError, hold, replace_file, write_note


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


def test_who_comes_before_the_note_of_a_lock_waits_for_it(tmp_path: Path) -> None:
    path = tmp_path / "owner.lock"
    with hold(path, "") as file:
        with pytest.raises(HeldError, match="another process"), hold(path, "late"):
            pass
        written = threading.Timer(0.2, lambda: write_note(file, "a process"))
        written.start()
        with pytest.raises(HeldError, match="a process"), hold(path, "late"):
            pass
        written.join()


def test_who_has_waited_for_a_lock_writes_its_own_note(tmp_path: Path) -> None:
    path = tmp_path / "owner.lock"
    first = hold(path, "first")
    first.__enter__()
    ended = threading.Timer(0.2, first.__exit__, (None, None, None))
    ended.start()
    with hold(path, "second", patience=10):
        assert path.read_text() == "second"
    ended.join()


def test_a_lock_whose_note_is_no_text_is_held_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "owner.lock"
    with hold(path, "a process"):
        path.write_bytes(b"\xff\xfe")
        with pytest.raises(HeldError):
            hold(path, "another").__enter__()
