"""The section of text: a row a model beside what nanoGPT publishes, and who is the best in linear time."""

from pathlib import Path

from momentum_transformer.experiments.runs import Request
from momentum_transformer.report.page import write_report
from momentum_transformer.training.run_directory import RunDirectory

from .made_up import add_run

FITTED = "model.budget=softmax"


def test_text_names_the_best_model_in_linear_time_and_who_is_below_nanogpt(tmp_path: Path) -> None:
    made = {("softmax", ()): 1.85, ("linear", ()): 1.95, ("gated-delta", (FITTED,)): 1.7, ("hybrid", (FITTED,)): 1.6}
    for (model, settings), nats in made.items():
        for seed in (0, 1):
            named = ("nats_per_character", "bits_per_byte", "perplexity")
            scores = {"loss": nats, **dict.fromkeys(named, nats + seed / 100)}
            add_run(tmp_path / "runs", Request("text", model, "small", seed, settings), scores)
    page, left_out = write_report([tmp_path / "runs"], tmp_path / "report")
    assert not left_out
    text = (tmp_path / "report" / "text-small.md").read_text()
    assert "| 1.705 ± 0.005 | 1.705 ± 0.005 |" in text
    assert "| nanoGPT, as published | – | – | – | 1.88 | – |" in text
    assert "| 0.001 | 1 | 1.855 ± 0.005 |" in text
    best = "The best model in linear time, gated-delta, writes better than softmax attention"
    assert f"- {best}: yes, in every pair of seeds.\n" in text
    assert f"<li>{best} (<a" in page.read_text()
    assert "- Below the 1.88 that nanoGPT publishes, with every seed: softmax, gated-delta, hybrid.\n" in text


def test_other_scales_of_text_are_not_compared_with_nanogpt(tmp_path: Path) -> None:
    names = ("loss", "nats_per_character", "bits_per_byte", "perplexity")
    add_run(tmp_path / "runs", Request("text", "linear", "tiny", 0, ()), dict.fromkeys(names, 1.5))
    write_report([tmp_path / "runs"], tmp_path / "report")
    text = (tmp_path / "report" / "text-tiny.md").read_text()
    assert "| 1.500 | 1.500 |" in text
    assert "nanoGPT" not in text


def test_a_model_of_text_is_shown_at_the_rate_that_validation_text_chose(tmp_path: Path) -> None:
    names = ("nats_per_character", "bits_per_byte", "perplexity")
    for rate, validation, test in (("", 1.9, 1.7), ("0.003", 1.8, 1.8), ("0.00033", 2.0, 1.6)):
        settings = (f"train.learning_rate={rate}",) if rate else ()
        scores = {"loss": validation, **dict.fromkeys(names, test)}
        add_run(tmp_path / "runs", Request("text", "softmax", "small", 0, settings), scores)
    write_report([tmp_path / "runs"], tmp_path / "report")
    rows = [
        line
        for line in (tmp_path / "report" / "text-small.md").read_text().splitlines()
        if line.startswith("| softmax |")
    ]
    assert len(rows) == 1
    assert "| 0.003 | 3 | 1.800 |" in rows[0]


def test_times_of_several_processors_are_left_out_and_the_study_is_under_way(tmp_path: Path) -> None:
    scores = dict.fromkeys(("loss", "nats_per_character", "bits_per_byte", "perplexity"), 1.5)
    for model, other in (("softmax", "one"), ("linear", "one"), ("retention", "another")):
        request = Request("text", model, "small", 0, (FITTED,) if model == "retention" else ())
        add_run(tmp_path / other, request, scores)
        RunDirectory(request.directory(tmp_path / other)).write("provenance.json", {"cpu": other})
    said = {}
    for name, roots in (("same", ["one"]), ("mixed", ["one", "another"])):
        write_report([tmp_path / root for root in roots], tmp_path / name)
        said[name] = [(tmp_path / name / f"text-small.{kind}").read_text() for kind in ("md", "svg")]
        assert "The study is under way. Not run yet: momentum" in said[name][0]
    assert ["CPU minutes" in table for table in said["same"][:1] + said["mixed"][:1]] == [True, False]
    width = [float(drawing.split('width="')[1].split("pt")[0]) for _, drawing in said.values()]
    assert width[1] < 0.6 * width[0]
