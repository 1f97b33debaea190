"""`momentum serve` from the command line."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from momentum_transformer.cli import main
from momentum_transformer.install import install_hint

from .test_runs import begin
from .toy_runs import train_toy


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(["serve", *words])
    assert isinstance(stopped.value.code, int)
    return stopped.value.code


def test_a_run_is_served_until_ctrl_c(tmp_path: Path) -> None:
    directory = begin(tmp_path, "digits", "momentum")
    process = subprocess.Popen(
        [sys.executable, "-m", "momentum_transformer", "serve", str(directory), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src"), "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], 100)[0]
        line = process.stdout.readline()
        assert line.startswith("momentum: http://127.0.0.1:")
        with urlopen(f"{line.split()[1]}models", timeout=20) as answer:
            assert [model["name"] for model in json.load(answer)["models"]] == ["momentum"]
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (process.returncode, out, error) == (0, "stopped\n", "")


def test_runs_of_both_kinds_are_served(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sentencepiece", reason="translation needs sentencepiece")
    monkeypatch.setattr("momentum_transformer.web.server.Server.run", lambda *_: None)
    translator = train_toy(tmp_path, "linear")
    capsys.readouterr()
    assert run(str(translator), "--port", "0") == 0
    assert capsys.readouterr().out.startswith("linear: http://127.0.0.1:")
    assert run(str(begin(tmp_path, "digits", "momentum")), str(translator), "--port", "0") == 0
    assert capsys.readouterr().out.startswith("2 models: http://127.0.0.1:")


def test_a_busy_port_is_said_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert run(str(tmp_path), "--port", str(port)) == 2
    error = capsys.readouterr().err
    assert error == f"momentum: cannot serve on 127.0.0.1 port {port}: Address already in use; try another --port\n"


def test_without_runs_and_without_a_shipped_model_it_says_what_to_do(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("momentum_transformer.experiments.shipped.SHIPPED", tmp_path)
    assert run("--port", "0") == 2
    assert "make one: momentum train digits, then: momentum serve runs" in capsys.readouterr().err


def test_without_runs_the_shipped_model_is_served_and_other_addresses_are_warned_of(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("momentum_transformer.experiments.shipped.SHIPPED", begin(tmp_path, "digits", "linear"))
    monkeypatch.setattr("momentum_transformer.web.server.Server.run", lambda *_: None)
    assert run("--port", "0", "--host", "0.0.0.0") == 0
    shown = capsys.readouterr().out
    assert "others can reach this page" in shown
    assert f"linear: http://{socket.gethostname()}:" in shown
    assert run("--port", "0") == 0
    assert "others can reach" not in capsys.readouterr().out


def test_runs_under_way_are_served_before_there_is_a_model(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("momentum_transformer.web.server.Server.run", lambda *_: None)
    (begin(tmp_path, "copy", "linear") / "checkpoint" / "best.safetensors").unlink()
    assert run(str(tmp_path), "--port", "0") == 0
    assert "no model yet, but runs to watch: http://127.0.0.1:" in capsys.readouterr().out


def test_a_missing_package_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "momentum_transformer.web.server", raising=False)
    assert run(".") == 2
    assert f"the page needs uvicorn: {install_hint('web')}" in capsys.readouterr().err
