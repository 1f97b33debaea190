"""The table of faults in small: `python -m tests.faults` is the whole of it. And it sees what it is there to see."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from momentum_transformer.experiments.runs import Request, run_training
from momentum_transformer.training.run_directory import RunDirectory
from tests.faults.evidence import evidence, lose_power, lost

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="a C compiler makes the faults")


@pytest.mark.timeout(3600)  # a minute, and many of them on a busy machine
def test_no_fault_leaves_a_run_stuck_lost_or_different(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.faults", "--quick", "--out", str(tmp_path / "faults.json")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((tmp_path / "faults.json").read_text())["rows"]
    assert len(rows) >= 15
    assert all(row["faults"] > 0 for row in rows)


def test_what_is_missing_or_different_is_seen(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    run_training(Request("copy", "linear", "tiny", 0, ("train.steps=4",)), run.path, resume=True)
    reference = evidence(run.path)
    assert lost(run.path, 4, reference) == ""
    assert "back to 4" in lost(run.path, 5, reference)
    lines = (run.path / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run.path / "metrics.jsonl").write_text("".join(lines[1:]))
    assert lost(run.path, 4, reference) == "metrics up to step 4 are missing"
    whole = run.last.read_bytes()
    run.last.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    (run.path / "config.json.writing").touch()
    found = evidence(run.path)
    assert [name for name in found if found[name] != reference[name]] == ["last", "metrics", "files", "left over"]
    run.last.write_bytes(whole[:-1])
    assert "unreadable" in lost(run.path, 4, reference)


def test_a_power_failure_takes_what_was_not_synced(tmp_path: Path) -> None:
    names = [str(tmp_path / name) for name in ("a.writing", "a", "b", "c")]
    for name, text in zip(names, ("", "new", "kept, and more", "synced"), strict=True):
        Path(name).write_text(text)
    log = [
        f"open\t{names[0]}\t0\t0", f"write\t{names[0]}\t\t3", f"rename\t{names[0]}\t{names[1]}\t0",
        f"open\t{names[2]}\t4\t0", f"write\t{names[2]}\t\t10",
        f"open\t{names[3]}\t0\t0", f"write\t{names[3]}\t\t6", f"fsync\t{names[3]}\t\t0",
    ]  # fmt: skip
    (tmp_path / "log").write_text("\n".join(log))
    lose_power(tmp_path / "log")
    assert [Path(name).read_text() for name in names[1:]] == ["", "kept", "synced"]
