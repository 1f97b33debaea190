"""The walk-through of docs/text.md, command by command, at scale tiny."""

import io
import re
import shlex
from pathlib import Path

import pytest

from momentum_transformer.cli import main

PAGE = (Path(__file__).parent.parent / "docs" / "text.md").read_text()
TEXT = "ROMEO:\nIt was the nightingale, and not the lark. " * 60


def test_the_walk_through_does_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.txt").write_text(TEXT)
    (tmp_path / "one.txt").write_text(f"{TEXT}<|end|>{TEXT}")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "two.txt").write_text(TEXT)
    block = re.search(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL)
    assert block is not None
    lines = [shlex.split(line, comments=True) for line in block[1].splitlines()]
    assert len(lines) == 10
    for program, command, *words in lines:
        assert program == "momentum"
        monkeypatch.setattr("sys.stdin", io.StringIO("ROMEO:\nIt was\n"))
        more = ["--scale", "tiny", "--set", "data.validation=0.05"] if command == "train" else []
        if "data.pieces=500" in words:
            words[words.index("data.pieces=500")] = "data.pieces=280"  # all that so short a text has
        with pytest.raises(SystemExit) as stopped:
            main([command, *words, *more])
        found = capsys.readouterr()
        assert stopped.value.code == 0, (words, found.err)
        if command == "generate":
            assert " tokens/s, a state of " in found.err
    assert (tmp_path / "report" / "index.html").is_file()


def test_the_code_of_the_page_runs() -> None:
    for code in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL):
        exec(compile(code, "text.md", "exec"), {})
