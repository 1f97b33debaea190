"""The walk-throughs of docs/own-data.md, command by command, at scale tiny."""

import io
import json
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

from momentum_transformer.cli import main
from momentum_transformer.data.png import write_grey_png
from tests.experiments.toy_language import write_pair

PAGE = (Path(__file__).parent.parent / "docs" / "own-data.md").read_text()
PARTS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, flags=re.MULTILINE | re.DOTALL))
MOST_LINES = 10


def commands(part: str) -> list[str]:
    (block,) = re.findall(r"```sh\n(.*?)```", PARTS[part], flags=re.DOTALL)
    found = block.splitlines()
    assert 3 < len(found) <= MOST_LINES
    return found


def follow(line: str, monkeypatch: pytest.MonkeyPatch, *, training: tuple[str, ...] = ()) -> None:
    """Run one line; what echo says is standard input."""
    first, _, second = line.partition(" | ")
    if second:
        said = shlex.split(first)[1]
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"{said}\n".encode())))
    words = shlex.split(second or first, comments=True)
    assert words.pop(0) == "momentum"
    with pytest.raises(SystemExit) as stopped:
        main([*words, *(("--scale", "tiny", *training) if words[0] == "train" else ())])
    assert stopped.value.code == 0, line


def test_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("PIL", "matplotlib"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    Path("photos").mkdir()
    for i in range(24):
        Path("photos", f"{i:02}.png").write_bytes(write_grey_png(np.full((9, 7), 10 * i, np.uint8)))
    for line in commands("Pictures"):
        follow(line, monkeypatch)
    assert all(Path(name).is_file() for name in ("drawn.png", "drawing.gif", "halves.png"))
    page = Path("report", "index.html").read_text()
    assert "Pictures of your own: photos" in page
    assert page.count("pictures drawn by") == 3


def test_texts_with_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for package in ("matplotlib", "transformers"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    rows = [(f"{'a fine' if i % 2 else 'a dull'} film, number {i}", "good" if i % 2 else "bad") for i in range(40)]
    Path("reviews.csv").write_text("text,label\n" + "".join(f'"{text}",{label}\n' for text, label in rows))
    Path("reviews.tsv").write_text("".join(f"{label}\t{text}\n" for text, label in rows))
    Path("new.txt").write_text("".join(f"{text}\n" for text, _ in rows))
    Path("new.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text, _ in rows))
    for line in commands("Texts with labels"):
        follow(line, monkeypatch)
    assert len(Path("labels.tsv").read_text().splitlines()) == len(rows)
    page = Path("report", "index.html").read_text()
    assert "Confusion matrix of momentum, seed 0, test split" in page
    assert json.loads(Path("exported", "config.json").read_text())["id2label"] == {"0": "bad", "1": "good"}
    capsys.readouterr()
    (code,) = re.findall(r"```python\n(.*?)```", PARTS["Texts with labels"], flags=re.DOTALL)
    exec(compile(code, "own-data.md", "exec"), {})
    assert capsys.readouterr().out.strip() in ("good", "bad")


def test_sentences_and_their_translations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("sentencepiece", "sacremoses", "sacrebleu"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    source, target = write_pair(tmp_path, 200)
    source.rename("train.en")
    target.rename("train.de")
    Path("new.en").write_text("A dog sleeps .\nA man runs .\n")
    for line in commands("Sentences and their translations"):
        follow(line, monkeypatch, training=("--set", "data.pieces=60"))
    assert len(Path("new.de").read_text().splitlines()) == 2
