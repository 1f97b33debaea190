"""The gap in the report: shares by their formula, rates by validation data, and no picture of a task at chance."""

from pathlib import Path

import numpy as np
import pytest

from momentum_transformer.experiments.experiment import Variant
from momentum_transformer.experiments.gap import APART, GAP_TASKS, SIZED, WITHOUT, GapTask
from momentum_transformer.experiments.study_runs import asked, at_rate
from momentum_transformer.report.collect import collect
from momentum_transformer.report.entries import chosen, index, no_gap, shares
from momentum_transformer.report.gap_section import meets_bar, results
from momentum_transformer.report.page import write_report

from .made_up import add_run

METHODS = {"least_squares": 0.0, "gradient_step": 0.3}
TASKS = {task.label: task for task in GAP_TASKS}


def better(task: GapTask, good: float) -> dict[str, float]:
    """Scores of a model that is this good, from 0, chance, to 1, perfect."""
    perfect = 1.0 if task.higher else 0.0
    score = task.chance + good * (perfect - task.chance)
    return {task.metric: score, **({"accuracy": good} if task.experiment == "copy" else {})}


def goodness(model: str, seed: int) -> float:
    return {"softmax": 0.9, "linear": 0.5}.get(model, 0.7) + 0.01 * seed


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of every model on every task; on parity everybody guesses."""
    root = tmp_path_factory.mktemp("gap")
    for task in GAP_TASKS:
        for variant in task.variants():
            for seed in range(2):
                good = 0.01 * seed if task.label == "parity" else goodness(variant.model, seed)
                request = asked(task.experiment, variant, "small")
                add_run(root, type(request)(**{**vars(request), "seed": seed}), better(task, good))
    for task in APART:
        for part, variant in WITHOUT.items():
            request = asked(task.experiment, variant, "small")
            if not request.directory(root).exists():
                add_run(root, request, better(task, 0.7 - 0.02 * len(part)))
    for i, variant in enumerate(SIZED):
        add_run(root, asked("recall", variant, "small"), {"accuracy": i / len(SIZED)})
    return root


def test_the_share_closed_is_that_of_the_formula() -> None:
    linear, softmax = np.array([2.0, 2.2]), np.array([1.0, 1.2])
    np.testing.assert_allclose(shares(np.array([2.1, 1.6, 1.1, 0.6]), linear, softmax), [0, 0.5, 1, 1.5])


def test_there_is_no_gap_where_softmax_guesses_or_is_not_better() -> None:
    parity, text, copy = TASKS["parity"], TASKS["text"], TASKS["copy 32"]
    assert no_gap(parity, np.array([0.5]), np.array([0.52])) == "softmax is at chance"
    assert no_gap(parity, np.array([0.52]), np.array([0.9])) == ""
    assert no_gap(text, np.array([2.60]), np.array([2.59])) == "softmax is not clearly better than linear"
    assert no_gap(text, np.array([2.6, 2.9]), np.array([2.5, 2.7])) == "softmax is not clearly better than linear"
    assert no_gap(text, np.array([2.74]), np.array([2.63])) == ""
    assert no_gap(text, np.array([2.46, 2.45, 2.44]), np.array([2.42, 2.43, 2.41])) == ""  # in every pair of seeds
    assert no_gap(copy, np.array([0.042]), np.array([0.001])) == ""


def test_validation_data_chooses_the_rate_and_the_test_split_does_not(tmp_path: Path) -> None:
    variant = Variant("linear", rates=(1.0, 1 / 3, 3.0))
    one = asked("recall", variant, "small")
    for factor, loss, accuracy in ((1.0, 2.0, 0.9), (3.0, 1.0, 0.1)):
        add_run(tmp_path, at_rate(one, factor), {"accuracy": accuracy}, loss=loss)
    entry = chosen("recall", variant, "small", index(collect([tmp_path])[0]))
    assert entry is not None
    assert (entry.rate, entry.tried, len(entry.runs)) == (0.009, 2, 1)
    assert entry.scores("accuracy") == [0.1]
    assert chosen("recall", Variant("softmax"), "small", index(collect([tmp_path])[0])) is None


@pytest.fixture(scope="module")
def report(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report")
    _, left_out = write_report([runs], out)
    assert not left_out
    return out


def test_the_report_draws_the_gap_the_parts_and_the_states(report: Path) -> None:
    for name in ("gap-small", "gap-apart-small", "gap-state-small"):
        assert (report / f"{name}.svg").read_text().startswith("<svg")
        assert (report / f"{name}.png").stat().st_size > 1000
    text = (report / "gap-small.md").read_text()
    assert "| delta | " in text
    assert "parity, softmax is at chance" in text
    assert "0.50 ± 0.01" in text  # (0.705 - 0.505) / 0.4 of the gap, and half the range
    assert "± is half the range over seeds" in text
    assert "momentum-delta" in text
    drawn = (report / "gap-small.svg").read_text()
    assert "<!-- parity -->" not in drawn
    assert "<!-- recall -->" in drawn
    assert "parity (softmax is at chance)" in (report / "index.html").read_text()


def test_parameters_are_in_every_table_of_the_gap(report: Path) -> None:
    for name in ("gap-small", "gap-apart-small", "gap-state-small"):
        assert "| parameters |" in (report / f"{name}.md").read_text()
    columns = [line for line in (report / "gap-small.md").read_text().splitlines() if line.startswith("| model ")]
    assert len(columns) == len(GAP_TASKS)
    assert all("| parameters |" in line for line in columns)


def test_the_bar_asks_for_softmax_or_for_both_softmaxes(runs: Path) -> None:
    made = {result.task.label: result for result in results("small", index(collect([runs])[0]))}
    assert meets_bar(made["recall"], "gated-delta").startswith("no (+0.1")
    assert meets_bar(made["recall"], "softmax + convolution").startswith("yes")
    assert "2 seeds" in meets_bar(made["text"], "gated-delta")
    assert meets_bar(made["text"], "nobody") == "not run"


def test_few_runs_are_reported_all_the_same(tmp_path: Path) -> None:
    task = TASKS["recall"]
    for variant in task.variants():
        if variant.model in ("softmax", "linear", "retention"):
            add_run(tmp_path / "runs", asked("recall", variant, "small"), better(task, goodness(variant.model, 0)))
    write_report([tmp_path / "runs"], tmp_path / "report")
    assert (tmp_path / "report" / "gap-small.svg").is_file()
    assert not (tmp_path / "report" / "gap-state-small.svg").exists()


def test_regression_in_context_is_drawn_beside_the_methods(tmp_path: Path) -> None:
    task = TASKS["regression"]
    for variant, error in zip(task.variants()[:2], (0.1, 0.5), strict=True):
        request = asked("regression", variant, "small")
        parts = {f"{name}_{n}": value for n in range(33) for name, value in (("error", error), *METHODS.items())}
        add_run(tmp_path / "runs", request, {"loss": error, **parts})
    write_report([tmp_path / "runs"], tmp_path / "report")
    text = (tmp_path / "report" / "regression-small.md").read_text()
    assert "| least squares |  | 0.000 | 0.000 | 0.000 | 0.000 |  |" in text
    assert "After all 32 examples softmax has the smallest error, 0.100." in text
    assert "Better than one gradient step with the best step size, 0.300: softmax." in text
    assert (tmp_path / "report" / "regression-small.svg").is_file()
