"""The translation section: Table 5 beside ours, what distillation adds, and sentences step by step."""

from pathlib import Path

import numpy as np
import pytest

from momentum_transformer.experiments import REPRODUCTIONS
from momentum_transformer.experiments.configuration import to_json
from momentum_transformer.experiments.study_runs import requests
from momentum_transformer.report.page import write_report
from momentum_transformer.training.run_directory import RunDirectory

from .made_up import add_translations


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for request, _ in requests(REPRODUCTIONS["translation"], "small", 1):
        if request.model not in ("autoregressive", "linear", "momentum"):
            continue
        run = RunDirectory(request.directory(tmp_path / "runs"))
        asked = {key: getattr(request, key) for key in ("experiment", "model", "scale", "seed")}
        run.create({**asked, "settings": list(request.settings), "config": to_json(request.config)})
        run.append_metrics({"kind": "validation", "step": 10, "loss": 1.0, "accuracy": 0.5, "seconds": 1.0})
        run.append_metrics({"kind": "end", "step": 10, "seconds": 1.0, "best_step": 10})
        better = 5.0 * (request.model == "momentum") + 3.0 * bool(request.settings)
        add_translations(run, request.model, rng, bleu=10.0 + better)
    return tmp_path / "runs"


def test_the_table_has_ours_the_papers_and_both_kinds_of_targets(runs: Path, tmp_path: Path) -> None:
    write_report([runs], tmp_path / "report")
    text = (tmp_path / "report" / "multi30k-small.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| momentum |")]
    assert [row.split(" | ")[1] for row in rows] == ["raw", "distilled"] * 2
    assert all("| 22.11 | 1 |" in row for row in rows[:2])
    assert all("| 200 | 100 | 10,000 | 5,000 | 1,398 |" in row for row in rows[2:])
    assert "Momentum attention translates better than linear attention (raw targets): yes, but with one seed" in text
    assert "What distillation adds, in BLEU: linear +" in text


def test_sentences_are_shown_step_by_step_as_text(runs: Path, tmp_path: Path) -> None:
    page, _ = write_report([runs], tmp_path / "report")
    html = page.read_text()
    assert "Step by step: A dog &lt;b&gt;." in html
    assert html.count(">Ein ein .</td>") == 4  # the first drafts of two models, raw and distilled


def test_runs_that_were_never_scored_have_no_section_but_their_curves(runs: Path, tmp_path: Path) -> None:
    for path in runs.rglob("metrics.jsonl"):
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(line for line in lines if '"translation"' not in line))
    page, _ = write_report([runs], tmp_path / "report")
    assert "Table 5" not in page.read_text()
    assert "autoregressive" in page.read_text()
