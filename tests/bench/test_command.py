"""`momentum bench` from end to end, on tiny shapes."""

import sys
from pathlib import Path

import pytest
import torch

from momentum_transformer.bench.measured_shapes import Shape
from momentum_transformer.bench.memory import measure
from momentum_transformer.bench.suite import read
from momentum_transformer.cli import main

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="resident memory and glibc's settings are Linux's")


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(["bench", *words])
    assert isinstance(stopped.value.code, int)
    return stopped.value.code


def test_quick_run_writes_record_and_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, plot = tmp_path / "a" / "bench.json", tmp_path / "b" / "bench.svg"
    before = torch.get_num_threads()
    assert run("--quick", "--no-peers", "--threads", str(before + 1), "--out", str(out), "--plot", str(plot)) == 0
    shown = capsys.readouterr().out
    assert "chunked momentum" in shown
    record = read(out)
    assert {row["name"] for block in record["shapes"] for row in block["rows"]} >= {"chunked linear", "SDPA"}
    assert record["threads"] == before + 1
    assert torch.get_num_threads() == before
    assert record["peers"] == {}
    assert plot.read_text().startswith("<svg")


def test_own_shapes_replace_the_standard_ones(tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    assert run("--quick", "--no-peers", "--shapes", "1,2,33,5", "2,1,8,16", "1,2,33,5", "--out", str(out)) == 0
    assert [block["shape"] for block in read(out)["shapes"][::2]] == [[1, 2, 33, 5], [2, 1, 8, 16]]


def test_quick_run_of_the_family_writes_its_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, before = tmp_path / "family.json", torch.get_num_threads()
    words = ["--family", "--quick", "--no-peers", "--shapes", "1,2,33,5", "--threads", "1", "--out", str(out)]
    assert run(*words) == 0
    assert "auto momentum delta" in capsys.readouterr().out
    assert torch.get_num_threads() == before
    shapes = [tuple(block["shape"]) for block in read(out, "family")["family"]]
    assert shapes == [(1, 2, 33, 5), (1, 2, 33, 5), (1, 2, 33, 5), (1, 2, 1, 5)]


def test_backends_are_named_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--backends") == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("native", "chunked", "quadratic", "recurrent", "active"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--shapes", "1,2,3"], "momentum: a shape is four positive whole numbers"),
        (["--threads", "0"], "momentum: --threads must be 1 or more, not 0"),
        (["--out", "."], "momentum: . is a folder; name a file"),
        (["--plot", "."], "momentum: . is a folder; name a file"),
        (["--family", "--plot", "family.svg"], "momentum: --family has no picture"),
        (["--family", "--shapes", "1,2,3"], "momentum: a shape is four positive whole numbers"),
        (["--family", "--threads", "0"], "momentum: --threads must be 1 or more, not 0"),
        (["--family", "--out", "."], "momentum: . is a folder; name a file"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--quick", *words) == 2
    error = capsys.readouterr().err
    assert error.startswith(message)
    assert error.count("\n") == 1


@ON_LINUX
def test_memory_counts_inputs_outputs_and_gradients() -> None:
    row = measure("chunked linear", Shape(1, 2, 40_000, 16))
    assert row["tensors"] == 8 * 2 * 40_000 * 16 * 4
    assert row["ratio"] > 0.9, row


@ON_LINUX
def test_memory_that_cannot_be_had_or_told_is_not_measured() -> None:
    assert measure("chunked linear", Shape(1, 1, 8, 8))["skipped"] == "too small to tell"
    assert measure("chunked linear", Shape(64, 8, 2**30, 64))["skipped"].endswith(" GB")
