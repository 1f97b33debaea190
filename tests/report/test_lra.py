"""Long Range Arena in the report: the paper's table beside ours, and baselines that are never hidden."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from momentum_transformer.experiments import REPRODUCTIONS
from momentum_transformer.experiments.configuration import to_json
from momentum_transformer.experiments.lra.lra_scales import TASKS
from momentum_transformer.experiments.study_runs import requests
from momentum_transformer.report.page import write_report
from momentum_transformer.training import run_directory
from momentum_transformer.training.run_directory import RunDirectory, RunError

ACCURACY = {"softmax": 0.38, "linear": 0.18, "momentum": 0.31, "adaptive-momentum": 0.33, "bag-of-tokens": 0.2}


def write_runs(root: Path, study: str, tasks: tuple[str, ...], seeds: int = 1) -> None:
    """Runs as a training would have left them, with made-up accuracies."""
    for request, _ in requests(REPRODUCTIONS[study], "small", seeds):
        if request.experiment not in tasks:
            continue
        run = RunDirectory(request.directory(root))
        asked = {key: getattr(request, key) for key in ("experiment", "model", "scale", "seed")}
        data = {
            "examples": {"train": 1000, "validation": 100, "test": 2000},
            "official": {"train": 96_000, "validation": 2000, "test": 2000},
            "longest": 255,
            "majority": 0.17,
        }
        run.create({**asked, "settings": list(request.settings), "config": to_json(request.config)}, data)
        accuracy = ACCURACY.get(request.model, 0.25) + 0.01 * request.seed
        for step in range(0, 101, 20):
            line = {"loss": 2.0 - step / 100, "accuracy": accuracy * step / 100, "seconds": step / 10}
            run.append_metrics({"kind": "validation", "step": step, **line})
        run.append_metrics({"kind": "end", "step": 100, "seconds": 20.0, "cpu_seconds": 10.0, "best_step": 100})
        run.append_metrics({"kind": "test", "step": 100, "checkpoint": "best", "loss": 1.0, "accuracy": accuracy})


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_directory, "provenance", dict)
        write_runs(root / "all", "lra", tuple(TASKS))
        write_runs(root / "two", "lra", ("lra-listops", "lra-text"), seeds=2)
        write_runs(root / "released", "lra-released", ("lra-listops",))
    return root


def test_table_4_stands_beside_ours(runs: Path, tmp_path: Path) -> None:
    page, _ = write_report([runs / "all"], tmp_path)
    lines = (tmp_path / "lra-small.md").read_text().splitlines()
    assert lines[0] == "| model | ListOps | Text | Retrieval | Image | Pathfinder | average |"
    cells = "38.00 (37.10) | 38.00 (64.17) | 38.00 (80.71) | 38.00 (39.06) | 38.00 (72.48) | 38.00 (58.70)"
    assert f"| softmax | {cells} |" in lines
    assert "| momentum-connection | 25.00 | 25.00 | 25.00 | 25.00 | 25.00 | 25.00 |" in lines
    assert "| bag-of-tokens | 20.00 | 20.00 | 20.00 | 20.00 | 20.00 | 20.00 |" in lines
    assert "| majority class | 17.00 | 17.00 | 17.00 | 17.00 | 17.00 | 17.00 |" in lines
    assert "| linear | 100 | 100 | 100 | 100 | 100 |" in lines  # CPU seconds per 1,000 steps
    text = page.read_text()
    assert text.count("<section") == text.count("<svg") == 1
    assert text.count("<table") == 3  # with the one of provenance


def test_what_is_no_better_than_guessing_is_said(runs: Path, tmp_path: Path) -> None:
    write_report([runs / "all"], tmp_path)
    text = (tmp_path / "lra-small.md").read_text()
    assert (
        "ListOps: not above the majority class (17.0 %) by two standard errors of a test on 2,000 examples: linear."
        in text
    )
    assert "ListOps: not above a bag of tokens (20.0 %)" in text
    assert "Momentum attention is more accurate than linear attention. ListOps: yes" in text
    assert "Adaptive momentum is more accurate than softmax. ListOps: no" in text


def test_tasks_that_were_not_run_are_left_out_and_seeds_are_averaged(runs: Path, tmp_path: Path) -> None:
    write_report([runs / "two"], tmp_path)
    lines = (tmp_path / "lra-small.md").read_text().splitlines()
    assert lines[0] == "| model | ListOps | Text |"
    assert "| softmax | 38.50 ± 0.50 (37.10) | 38.50 ± 0.50 (64.17) |" in lines


def test_the_released_protocol_has_a_section_of_its_own(runs: Path, tmp_path: Path) -> None:
    write_report([runs / "released", runs / "two"], tmp_path)
    assert (tmp_path / "lra-released-small.md").read_text().startswith("| model | ListOps |")
    assert (tmp_path / "lra-small.md").exists()


def benchmark() -> dict[str, Any]:
    lengths = [
        {"model": m, "length": n, "seconds_per_1000_steps": f * n, "peak_extra_bytes": f * n * 2**20}
        for m, f in (("softmax", 4), ("momentum", 1))
        for n in (1024, 4096)
    ]
    return {
        "command": "python -m momentum_transformer.bench.lra_speed",
        "machine": {"cpu": "some", "threads": 2, "torch": "2"},
        "shape": "small",
        "lengths": lengths,
        "listops": {
            "batch": 32,
            "seconds_per_step": {"softmax": 9.0, "momentum": 2.0},
            "softmax_over_momentum": 4.5,
            "share_of_a_momentum_step_spent_on_its_batch": 0.001,
        },
    }


def test_what_was_measured_against_length_is_shown_where_it_lies_among_the_runs(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "released", tmp_path / "runs")
    (tmp_path / "runs" / "lra.json").write_text(json.dumps(benchmark()))
    write_report([tmp_path / "runs"], tmp_path / "report")
    text = (tmp_path / "report" / "lra-efficiency.md").read_text()
    assert "| momentum | 1,024 | 4,096 | 1,024 | 4,096 |" in text
    assert "takes momentum attention 2.00 s and softmax 9.00 s: 4.5 times as long" in text
    assert "Making the batch is 0.10 % of a momentum step" in text
    assert "4 times as many, the memory of softmax grows 4.0 times" in text
    (tmp_path / "runs" / "lra.json").write_text("{}")
    with pytest.raises(RunError, match=r"lra.json is not what bench/lra_speed.py writes: KeyError"):
        write_report([tmp_path / "runs"], tmp_path / "report")
