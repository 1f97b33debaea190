"""Runs under way: what was written last is shown, and no file, however odd, does harm or fills the memory."""

import json
from pathlib import Path
from typing import Any

import pytest

from momentum_transformer.training.run_directory import RunDirectory
from momentum_transformer.web import training_view as training
from momentum_transformer.web.training_view import MOST_POINTS, MOST_RUNS, MOST_SAMPLES, Lines, Watch, thinned


def begin(root: Path, name: str = "run", *, steps: int = 100) -> Path:
    run = root / name
    run.mkdir(parents=True)
    stored = {
        "experiment": "text",
        "model": "gated-delta",
        "scale": "small",
        "seed": 0,
        "settings": ["data.context=8"],
        "config": {"train": {"steps": steps}},
    }
    (run / "config.json").write_text(json.dumps(stored))
    return run


def note(run: Path, *lines: Any, file: str = "metrics.jsonl") -> None:
    with (run / file).open("a") as out:
        out.writelines((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)


def train(step: int, loss: float = 1.0) -> dict[str, Any]:
    return {"kind": "train", "step": step, "loss": loss, "tokens_per_second": 5.0}


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(training, "SEARCH_SECONDS", 0.0)


def test_a_run_is_followed_as_it_goes(tmp_path: Path) -> None:
    watch = Watch([tmp_path])
    assert watch.runs() == []
    run = begin(tmp_path)
    (before,) = watch.runs()
    assert (before["name"], before["detail"], before["step"], before["steps"], before["train"]) == (
        *("text gated-delta", "small-seed0, data.context=8", 0, 100, []),
    )
    note(run, {"kind": "validation", "step": 0, "loss": 3.0}, train(10, 2.0))
    note(run, {"step": 0, "text": "Lo"}, file="samples.jsonl")
    (shown,) = watch.runs()
    assert (shown["state"], shown["step"], shown["tokens_per_second"]) == ("under way", 10, 5.0)
    assert (shown["train"], shown["validation"]) == ([(10, 2.0)], [(0, 3.0)])
    note(run, train(20, 1.0), {"kind": "end", "step": 20}, {"kind": "concluded", "step": 20})
    note(run, {"step": 20, "text": "Lorem"}, file="samples.jsonl")
    (shown,) = watch.runs()
    assert (shown["state"], shown["train"]) == ("finished", [(10, 2.0), (20, 1.0)])
    assert [sample["step"] for sample in shown["samples"]] == [20, 0]


def test_a_line_is_taken_once_and_only_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    lines = Lines(path)
    assert lines.read() == (False, [])
    path.write_text('{"a": 1}\n{"a": ')
    assert lines.read() == (False, [{"a": 1}])
    assert lines.read() == (False, [])
    with path.open("a") as file:
        file.write("2}\n")
    assert lines.read() == (False, [{"a": 2}])
    path.write_text('{"a": 3}\n')  # carried on from a checkpoint
    assert lines.read() == (True, [{"a": 3}])


def test_a_run_carried_on_from_a_checkpoint_forgets_what_came_after_it(tmp_path: Path) -> None:
    run = begin(tmp_path)
    note(run, train(10), train(20), train(30))
    watch = Watch([tmp_path])
    watch.runs()
    (run / "metrics.jsonl").write_text("")
    note(run, train(10))
    (shown,) = watch.runs()
    assert (shown["step"], shown["train"]) == (10, [(10, 1.0)])


def test_a_configuration_of_infinitely_many_steps_is_a_run_like_others(tmp_path: Path) -> None:
    run = begin(tmp_path)
    stored = json.loads((run / "config.json").read_text())
    stored["config"] = {"train": {"steps": float("inf")}}
    (run / "config.json").write_text(json.dumps(stored))
    (shown,) = Watch([tmp_path]).runs()
    assert (shown["steps"], shown["detail"]) == (None, "its config.json cannot be read")


def test_what_is_shown_is_bounded(tmp_path: Path) -> None:
    for number in range(MOST_RUNS + 3):
        run = begin(tmp_path, f"run{number:02}")
        note(run, *(train(step) for step in range(3000)))
        note(run, *({"step": step, "text": "x" * 5000} for step in range(50)), file="samples.jsonl")
    watch = Watch([tmp_path])
    shown = watch.runs()
    assert len(shown) == MOST_RUNS
    assert json.loads(watch.answer())["more"] == 3
    for one in shown:
        assert len(one["train"]) <= MOST_POINTS
        assert len(one["samples"]) == MOST_SAMPLES
    assert len(watch.answer()) < 400_000


def test_a_thinned_curve_keeps_its_last_point() -> None:
    curve = [(step, 1.0) for step in range(1001)]
    kept = thinned(curve)
    assert len(kept) <= MOST_POINTS
    assert kept[-1] == curve[-1]
    assert thinned(curve[:5]) == curve[:5]


@pytest.mark.parametrize(
    "line",
    [
        "?",
        "[]",
        "[" * 100_000,
        '{"kind": "train"}',
        '{"kind": "train", "step": "x", "loss": 1}',
        '{"kind": "train", "step": true, "loss": 1}',
        '{"kind": "train", "step": 1, "loss": NaN}',
        '{"kind": "train", "step": 1, "loss": "low", "tokens_per_second": Infinity}',
        "x" * 3 * 2**20,
    ],
    ids=["noise", "list", "deep", "no step", "step", "true", "NaN", "loss", "long"],
)
def test_odd_lines_are_passed_over(tmp_path: Path, line: str) -> None:
    run = begin(tmp_path)
    note(run, line)
    watch = Watch([tmp_path])
    for _ in range(5):
        watch.answer()
    note(run, train(2))
    assert json.loads(watch.answer())["runs"][0]["train"] == [[2, 1.0]]


def test_a_run_with_a_damaged_configuration_is_named_and_the_others_are_shown(tmp_path: Path) -> None:
    begin(tmp_path, "good")
    (begin(tmp_path, "bad") / "config.json").write_text("{")
    details = {run["name"]: run["detail"] for run in Watch([tmp_path]).runs()}
    assert details["bad"] == "its config.json cannot be read"
    assert "text gated-delta" in details


def test_a_run_without_news_is_said_to_have_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note(begin(tmp_path), train(1))
    monkeypatch.setattr(training, "SILENT_SECONDS", -1.0)
    assert Watch([tmp_path]).runs()[0]["state"] == "stopped"


def test_a_run_is_under_way_as_long_as_a_process_owns_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunDirectory(begin(tmp_path))
    watch = Watch([tmp_path])
    with run.owned():
        monkeypatch.setattr(training, "SILENT_SECONDS", -1.0)
        note(run.path, train(1))
        assert watch.runs()[0]["state"] == "under way"
    monkeypatch.setattr(training, "SILENT_SECONDS", 600.0)
    assert watch.runs()[0]["state"] == "stopped"
    with run.owned():  # the look left no lock behind
        assert watch.runs()[0]["state"] == "under way"


def test_pictures_that_a_run_drew_are_shown_unless_they_are_large(tmp_path: Path) -> None:
    grid = begin(tmp_path) / "samples" / "grid.png"
    grid.parent.mkdir()
    grid.write_bytes(b"PNG")
    watch = Watch([tmp_path])
    assert watch.runs()[0]["picture"] == "data:image/png;base64,UE5H"
    grid.write_bytes(bytes(10**6))
    assert watch.runs()[0]["picture"] is None


def test_shipped_runs_come_after_own_ones(tmp_path: Path) -> None:
    begin(tmp_path / "shipped")
    begin(tmp_path / "own")
    details = [run["detail"] for run in Watch([tmp_path / "own", tmp_path / "none"], tmp_path / "shipped").runs()]
    assert [detail.startswith("comes with the package") for detail in details] == [False, True]


def test_however_many_ask_the_files_are_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "LOOK_SECONDS", 3600.0)
    run = begin(tmp_path)
    watch = Watch([tmp_path])
    first = watch.answer()
    note(run, train(1))
    assert watch.answer() == first
