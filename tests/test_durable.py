"""Files that are replaced in one step."""

import os
from pathlib import Path

import pytest

from momentum_transformer.durable import replace_file


def test_two_processes_that_replace_one_file_do_not_disturb_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.html"

    def write(temporary: Path) -> None:
        temporary.write_text("ours")
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: -1)
            replace_file(path, lambda other: other.write_text("theirs"))

    replace_file(path, write)
    assert path.read_text() == "ours"
    assert list(tmp_path.iterdir()) == [path]
