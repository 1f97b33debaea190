"""Every example runs, and does what it says."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "examples"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))


def run(name: str, *words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *words])
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    return capsys.readouterr().out


def test_every_example_is_tested_and_listed() -> None:
    page, tests = (FOLDER / "README.md").read_text(), Path(__file__).read_text()
    assert len(NAMES) == 6
    for name in NAMES:
        assert f"[{name}.py]({name}.py)" in page
        assert f'"{name}' in tests


def test_gpt_learns_in_forty_lines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert len((FOLDER / "gpt.py").read_text().splitlines()) <= 40
    shown = run("gpt", "8", capsys=capsys, monkeypatch=monkeypatch)
    first, last = (float(bits) for bits in re.findall(r"([\d.]+) bits/byte", shown)[:2])
    assert last < first - 1


def test_the_classifier_is_better_than_guessing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = run("classifier", "60", capsys=capsys, monkeypatch=monkeypatch)
    assert float(re.findall(r"accuracy ([\d.]+)", shown)[0]) > 0.5


def test_a_model_written_for_torch_takes_our_attention(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "padding changes nothing: True" in run("swap", capsys=capsys, monkeypatch=monkeypatch)


def test_the_plain_loop_carries_on_exactly_where_it_stopped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code = (FOLDER / "loop.py").read_text()
    every = tmp_path / "every.py"
    every.write_text(code.replace("% 50 == 0", "% 2 == 0"))
    monkeypatch.setattr(sys, "argv", ["loop.py", "6", str(tmp_path / "whole")])
    runpy.run_path(str(every))
    whole = capsys.readouterr().out.splitlines()
    stopped = tmp_path / "stopped.py"
    stopped.write_text(code.replace("% 50 == 0", "% 2 == 0").replace("range(first, steps)", "range(first, 4)"))
    monkeypatch.setattr(sys, "argv", ["loop.py", "6", str(tmp_path / "half")])
    runpy.run_path(str(stopped))
    capsys.readouterr()
    runpy.run_path(str(every))
    assert capsys.readouterr().out.splitlines() == ["carrying on at step 4", whole[-1]]


def test_one_exported_graph_serves_every_length() -> None:
    # in a process of its own: torch cannot trace the shape checks of the tests
    done = subprocess.run([sys.executable, FOLDER / "export.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("the same logits: True") == 3


@pytest.mark.slow
def test_transformers_trains_our_model(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("accelerate", reason="accelerate is not installed: Transformers' Trainer needs it")
    pytest.importorskip("transformers")
    shown = run("trainer", "40", str(tmp_path / "output"), capsys=capsys, monkeypatch=monkeypatch)
    assert (tmp_path / "output" / "model.safetensors").is_file()
    assert "asked to repeat [" in shown
