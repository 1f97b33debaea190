"""The report: reads run directories only, and opens in a browser with its figures and tables."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from momentum_transformer.experiments import REPRODUCTIONS
from momentum_transformer.experiments.configuration import to_json
from momentum_transformer.experiments.pictures.picture_scales import SHAPES
from momentum_transformer.experiments.runs import Request
from momentum_transformer.experiments.study_runs import requests
from momentum_transformer.generation.grids import save_grid
from momentum_transformer.report.page import write_report
from momentum_transformer.report.section import separated
from momentum_transformer.report.tables import Table, spread
from momentum_transformer.training.run_directory import RunDirectory, RunError

from ..browsers import chromium, new_page
from .made_up import add_translations

SINGLE = [study for study in REPRODUCTIONS.values() if not study.others and not study.then]  # of one experiment
OF_THE_GAP = ("gap-small", "gap-apart-small")  # whose runs those of the text study are, too


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every run of every study with made-up curves, as a training would have left them."""
    root = tmp_path_factory.mktemp("runs")
    rng = np.random.default_rng(0)
    for study in SINGLE:
        for request, _ in requests(study, "small", 2):
            run = RunDirectory(request.directory(root))
            if run.path.exists():
                continue
            asked = {key: getattr(request, key) for key in ("experiment", "model", "scale", "seed")}
            run.create({**asked, "settings": list(request.settings), "config": to_json(request.config)})
            pictures = study.name in SHAPES
            for step in range(0, 1201, 60):
                loss = float(2.3 * np.exp(-step / 300) + 0.01 * rng.random())
                bits = {"bits_per_dim": loss / np.log(2), "bits_per_dim_paper": loss / np.log(2)}
                metrics = bits if pictures else {"accuracy": float(np.exp(-loss)), "nats_per_character": loss}
                run.append_metrics(
                    {
                        "kind": "validation",
                        "step": step,
                        "loss": loss,
                        **metrics,
                        "seconds": 0.0,
                        "cpu_seconds": step / 20,
                    }
                )
            spent = {"seconds": 90.0, "cpu_seconds": 60.0}
            run.append_metrics({"kind": "end", "step": 1200, **spent, "best_step": 1200})
            if pictures:
                run.append_metrics({"kind": "test", "step": 1200, "checkpoint": "best", "loss": loss, **bits})
                _add_speed_and_samples(run, request.model)
            if study.experiment == "text":
                scores = {"loss": loss, "nats_per_character": loss, "bits_per_byte": loss, "perplexity": loss}
                run.append_metrics({"kind": "test", "step": 1200, "checkpoint": "best", **scores})
            if study.experiment in ("multi30k", "iwslt16"):
                add_translations(run, request.model, rng)
    return root


def _add_speed_and_samples(run: RunDirectory, model: str) -> None:
    for method in ("cache", "recompute") if model == "softmax" else ("recurrent",):
        speed = {"images_per_second": 0.5 if method == "recompute" else 2.0, "bytes_per_image": 4096}
        run.append_metrics({"kind": "throughput", "model": model, "batch": 8, "method": method, **speed})
    save_grid(torch.zeros(4, 64, dtype=torch.uint8), (8, 8, 1), run.path / "samples" / "grid.png")


def test_the_report_has_a_section_a_figure_and_a_table_for_every_study(runs: Path, tmp_path: Path) -> None:
    page, left_out = write_report([runs], tmp_path)
    text = page.read_text()
    assert not left_out
    assert text.count("<section") == text.count("<svg") == len(SINGLE) + len(OF_THE_GAP)
    assert all("<table" in section for section in text.split("<section")[1:])
    assert "http-equiv" not in text
    assert text.count('src="') == text.count('src="data:image/png;base64,') == 4 * 5
    names = ("copy", "ablation-connection", "ablation-beta", "weighting", "sweep", *SHAPES, "multi30k", "iwslt16")
    for name in (*(f"{name}-small" for name in names), *OF_THE_GAP):
        assert (tmp_path / f"{name}.png").stat().st_size > 1000
        assert (tmp_path / f"{name}.svg").read_text().startswith("<svg")
        assert (tmp_path / f"{name}.md").read_text().startswith("| ")


def test_the_picture_section_has_the_papers_table_beside_ours(runs: Path, tmp_path: Path) -> None:
    write_report([runs / "mnist", runs / "digits"], tmp_path)
    text = (tmp_path / "mnist-small.md").read_text()
    header, _, softmax, recomputed, *_ = text.splitlines()
    assert "| paper: bits/dim | images/s | at batch | bytes kept an image | paper: images/s |" in header
    assert "| 0.84 | 2 | 8 | 4,096 |  |" in softmax
    assert recomputed.startswith("| softmax, prefix recomputed |  |  |  | 0.5 | 8 | 4,096 | 0.45 |")
    assert "| 0.80 | 2 | 8 | 4,096 | 134.9 |" in text
    assert "momentum draws 1 × softmax with a key-value cache and 4 × softmax with the prefix recomputed" in text
    assert "paper:" not in (tmp_path / "digits-small.md").read_text()
    assert (tmp_path / "mnist-small-adaptive-momentum.png").is_file()


def test_pictures_without_test_speed_or_samples_are_reported_all_the_same(runs: Path, tmp_path: Path) -> None:
    victim = tmp_path / "runs" / "digits" / "linear" / "small-seed0"
    shutil.copytree(runs / "digits" / "linear" / "small-seed0", victim)
    shutil.rmtree(victim / "samples")
    lines = (victim / "metrics.jsonl").read_text().splitlines(keepends=True)
    (victim / "metrics.jsonl").write_text(
        "".join(line for line in lines if '"test"' not in line and "batch" not in line)
    )
    page, _ = write_report([tmp_path / "runs"], tmp_path / "report")
    assert "not scored" in page.read_text()
    assert "images/s" not in page.read_text()
    assert "Samples" not in page.read_text()


def test_the_same_runs_give_the_same_bytes(runs: Path, tmp_path: Path) -> None:
    some = [runs / "copy" / "linear", runs / "digits"]
    first, second = (write_report(some, tmp_path / name)[0].read_bytes() for name in ("a", "b"))
    assert first == second


def test_unfinished_runs_are_left_out_and_named(runs: Path, tmp_path: Path) -> None:
    victim = tmp_path / "runs" / "digits" / "linear" / "small-seed0"
    shutil.copytree(runs / "digits" / "linear", victim.parent)
    lines = (victim / "metrics.jsonl").read_text().splitlines(keepends=True)
    (victim / "metrics.jsonl").write_text("".join(line for line in lines if '"end"' not in line))
    _, left_out = write_report([tmp_path / "runs"], tmp_path / "report")
    (line,) = left_out
    assert re.fullmatch(
        rf"{victim}: not finished, [\d,]+ of [\d,]+ steps; validation at step [\d,]+: .*bits_per_dim \d\.\d{{4}}.*",
        line,
    )
    with (victim / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "another", "step": [1]}\n{"kind": "train", "step": 1, "loss": 1.0}\n')
    assert write_report([tmp_path / "runs"], tmp_path / "report")[1] == left_out  # a strange step is none
    (victim / "metrics.jsonl").write_text("")
    _, left_out = write_report([tmp_path / "runs"], tmp_path / "report")
    assert left_out == [f"{victim}: not finished"]


def test_nothing_to_report_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no finished run in"):
        write_report([tmp_path], tmp_path / "report")


def test_verdicts_follow_the_numbers() -> None:
    low, high, middle = np.array([0.1, 0.2]), np.array([0.3, 0.4]), np.array([0.15, 0.35])
    assert separated(low, high) == "yes, in every pair of seeds"
    assert separated(low[:1], high[:1]) == "yes, but with one seed only"
    assert separated(high[:1], low[:1]) == "no, but with one seed only"
    assert separated(low[:1], high) == "yes, but with one seed only"
    assert separated(low, middle) == "on average, but the seeds overlap"
    assert separated(high, low) == "no"
    assert spread([1.0, 2.0], 1) == "1.5 ± 0.5"
    assert spread([1.0], 2) == "1.00"
    assert spread([np.inf, 1.0], 1) == "1 of 2 runs"


def test_a_real_browser_shows_every_figure_and_table(runs: Path, tmp_path: Path) -> None:
    with chromium() as browser:
        page_path, _ = write_report([runs], tmp_path)
        page = new_page(browser, viewport={"width": 1200, "height": 900})
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
        assert len(page.query_selector_all("section")) == len(SINGLE) + len(OF_THE_GAP)
        assert page.locator("#copy-small tbody tr").count() == 6
        assert page.locator("#mnist-small .gallery img").count() == 5
        assert page.evaluate("[...document.images].every(image => image.naturalWidth > 50)")
        assert page.evaluate("document.documentElement.scrollWidth") <= 1200
        assert not problems


def test_runs_of_no_study_are_listed_and_unknown_ones_left_out(tmp_path: Path) -> None:
    for name in ("recall", "known-to-another-version"):
        request = Request("recall", "delta", "tiny", settings=("train.steps=2",))
        run = RunDirectory(tmp_path / "runs" / name)
        asked = {"experiment": name, "model": "delta", "scale": "tiny", "seed": 0, "settings": list(request.settings)}
        run.create({**asked, "config": to_json(request.config)})
        run.append_metrics({"kind": "validation", "step": 2, "loss": 0.5, "accuracy": 0.75, "seconds": 1.0})
        run.append_metrics({"kind": "end", "step": 2, "seconds": 1.0, "best_step": 2})
    page, left_out = write_report([tmp_path / "runs"], tmp_path / "report")
    assert ">delta, train.steps=2</td><td>0.5000</td><td>0.7500</td><td>0</td>" in page.read_text()
    (line,) = left_out
    assert line.startswith(f"{tmp_path / 'runs' / 'known-to-another-version'}: unknown experiment")


def test_numbers_stand_to_the_right_and_words_to_the_left() -> None:
    rows = (("linear", "0.12 ± 0.01", "2 × no, but with one seed only", "-"), ("softmax", "never", "", "-1"))
    table = Table("", ("model", "loss", "why", "seeds"), rows)
    assert table.markdown().splitlines()[1] == "|---|---:|---|---:|"
