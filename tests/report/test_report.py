"""The report: reads run directories only, and opens in a browser with its figures and tables."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from momentum_transformer.experiments import REPRODUCTIONS
from momentum_transformer.experiments.configuration import to_json
from momentum_transformer.experiments.reproduce import requests
from momentum_transformer.report.page import write_report
from momentum_transformer.report.sections import separated
from momentum_transformer.report.tables import spread
from momentum_transformer.training.run_directory import RunDirectory, RunError


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every run of every study with made-up curves, as a training would have left them."""
    root = tmp_path_factory.mktemp("runs")
    rng = np.random.default_rng(0)
    for study in REPRODUCTIONS.values():
        for request in requests(study, "small", 2):
            run = RunDirectory(request.directory(root))
            if run.path.exists():
                continue
            asked = {key: getattr(request, key) for key in ("experiment", "model", "scale", "seed")}
            run.create({**asked, "settings": list(request.settings), "config": to_json(request.config)})
            for step in range(0, 1201, 60):
                loss = float(2.3 * np.exp(-step / 300) + 0.01 * rng.random())
                line = {"kind": "validation", "step": step, "loss": loss, "accuracy": float(np.exp(-loss))}
                run.append_metrics({**line, "seconds": step / 20})
            run.append_metrics({"kind": "end", "step": 1200, "seconds": 60.0, "best_step": 1200})
    return root


def test_the_report_has_a_section_a_figure_and_a_table_for_every_study(runs: Path, tmp_path: Path) -> None:
    page, left_out = write_report([runs], tmp_path)
    text = page.read_text()
    assert not left_out
    assert text.count("<section") == text.count("<svg") == text.count("<table") == len(REPRODUCTIONS)
    assert "http-equiv" not in text
    assert 'src="' not in text
    for name in ("copy-small", "ablation-connection-small", "ablation-beta-small", "weighting-small", "sweep-small"):
        assert (tmp_path / f"{name}.png").stat().st_size > 1000
        assert (tmp_path / f"{name}.svg").read_text().startswith("<svg")
        assert (tmp_path / f"{name}.md").read_text().startswith("| ")


def test_the_same_runs_give_the_same_bytes(runs: Path, tmp_path: Path) -> None:
    first, second = (write_report([runs], tmp_path / name)[0].read_bytes() for name in ("a", "b"))
    assert first == second


def test_unfinished_runs_are_left_out_and_named(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs, tmp_path / "runs")
    victim = tmp_path / "runs" / "copy" / "linear" / "small-seed0"
    lines = (victim / "metrics.jsonl").read_text().splitlines(keepends=True)
    (victim / "metrics.jsonl").write_text("".join(lines[:-1]))
    _, left_out = write_report([tmp_path / "runs"], tmp_path / "report")
    assert left_out == [f"{victim}: not finished"]


def test_nothing_to_report_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no finished run in"):
        write_report([tmp_path], tmp_path / "report")


def test_verdicts_follow_the_numbers() -> None:
    low, high, middle = np.array([0.1, 0.2]), np.array([0.3, 0.4]), np.array([0.15, 0.35])
    assert separated(low, high) == "yes, in every pair of seeds"
    assert separated(low, middle) == "on average, but the seeds overlap"
    assert separated(high, low) == "no"
    assert spread([1.0, 2.0], 1) == "1.5 ± 0.5"
    assert spread([1.0], 2) == "1.00"
    assert spread([np.inf, 1.0], 1) == "1 of 2 runs"


def test_a_real_browser_shows_every_figure_and_table(runs: Path, tmp_path: Path) -> None:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("there is no chromium on this machine")
    page_path, _ = write_report([runs], tmp_path)
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1200, "height": 900})
        problems: list[str] = []
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: None if request.url.startswith("file:") else problems.append(request.url))
        page.goto(page_path.as_uri())
        assert page.title() == "Momentum Transformer: report"
        for figure in page.query_selector_all("section figure svg"):
            box = figure.bounding_box()
            assert box is not None
            assert box["width"] > 400
            assert box["height"] > 150
        assert len(page.query_selector_all("section")) == len(REPRODUCTIONS)
        assert page.locator("#copy-small tbody tr").count() == 6
        assert page.evaluate("document.documentElement.scrollWidth") <= 1200
        assert not problems
        browser.close()
