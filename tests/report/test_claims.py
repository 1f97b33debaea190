"""Verdicts on the paper's claims follow the runs, and no number on the page is typed by hand."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from momentum_transformer.experiments import REPRODUCTIONS
from momentum_transformer.experiments.runs import Request
from momentum_transformer.report.claims import CLAIMS, claims_markdown
from momentum_transformer.report.collect import collect
from momentum_transformer.report.comparisons import ACCURACY, LOSS, Comparison, compare, verdict_of
from momentum_transformer.report.evidence import generation, listops

from .made_up import add_run

PAGE = Path(__file__).parents[2] / "docs" / "claims.md"


def comparison(better: list[float], worse: list[float], *, chance: float | None = None) -> Comparison:
    return Comparison("here", LOSS if chance is None else ACCURACY, np.array(better), np.array(worse), chance)


CLEAR = comparison([1.0, 1.1], [1.2, 1.3])
AGAINST = comparison([1.2, 1.3], [1.0, 1.1])
OVERLAP = comparison([1.0, 1.2], [1.1, 1.3])
ONE = comparison([1.0], [2.0])
GUESSED = comparison([0.51, 0.51], [0.50, 0.50], chance=0.5)


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        ([CLEAR, CLEAR], "yes"),
        ([CLEAR, GUESSED], "yes"),
        ([CLEAR, OVERLAP], "only with"),
        ([CLEAR, AGAINST], "only with"),
        ([AGAINST, OVERLAP], "no"),
        ([OVERLAP, ONE], "not decided"),
        ([GUESSED], "not decided"),
        ([], "not decided"),
    ],
)
def test_a_verdict_is_what_the_comparisons_say(found: list[Comparison], verdict: str) -> None:
    assert verdict_of(found)[0] == verdict


def test_models_are_compared_where_both_were_run_with_the_same_settings(tmp_path: Path) -> None:
    for model, accuracy in (("momentum", 0.9), ("linear", 0.8)):
        for seed in range(2):
            add_run(tmp_path, Request("recall", model, "small", seed), {"accuracy": accuracy + 0.01 * seed})
    add_run(tmp_path, Request("s3", "momentum", "small"), {"accuracy": 1.0})
    add_run(tmp_path, Request("recall", "linear", "small", 0, ("model.heads=2",)), {"accuracy": 1.0})
    (found,) = compare(collect([tmp_path])[0], "momentum", "linear")
    assert found.where == "recall, small"
    assert found.verdict == "yes, in every pair of seeds"
    np.testing.assert_allclose(found.worse, [0.8, 0.81])


def test_listops_is_decided_at_the_papers_scale_only(tmp_path: Path) -> None:
    for scale, ahead in (("small", 0.01), ("paper", 0.2)):
        for model, more in (("softmax", ahead), ("linear", 0.0)):
            add_run(tmp_path / scale, Request("lra-listops", model, scale), {"accuracy": 0.17 + more})
    small = listops(collect([tmp_path / "small"])[0], tmp_path)
    assert (small.verdict, "+1.00 points" in small.why) == ("not decided", True)
    both = listops(collect([tmp_path])[0], tmp_path)
    assert (both.verdict, "+20.00 points" in both.why) == ("yes", True)


def test_faster_than_a_softmax_that_recomputes_is_not_faster_than_one_with_a_cache(tmp_path: Path) -> None:
    speeds = {("softmax", "cache"): 5.0, ("softmax", "recompute"): 0.1, ("momentum", "recurrent"): 10.0}
    rows = [{"model": m, "method": how, "images_per_second": speed} for (m, how), speed in speeds.items()]
    (tmp_path / "generation.json").write_text(json.dumps({"rows": rows}))
    found = generation([], tmp_path)
    assert found.verdict == "only with"
    assert "100 times" in found.why
    assert "2 times" in found.why
    assert generation([], tmp_path / "nowhere").verdict == "not decided"


def test_every_claim_has_words_evidence_a_verdict_and_a_command(tmp_path: Path) -> None:
    add_run(tmp_path, Request("copy", "linear", "small"), {"accuracy": 0.9})
    text = claims_markdown(collect([tmp_path])[0], tmp_path)
    for claim in CLAIMS:
        assert f"> {claim.words}" in text
        assert f"Command: `{claim.command}`" in text
    assert len(re.findall(r"^\*\*(Yes|No|Only with|Not decided)\*\*: ", text, flags=re.MULTILINE)) == len(CLAIMS)
    for study in re.findall(r"momentum reproduce ([\w-]+)", text):
        assert study in REPRODUCTIONS


def test_no_number_on_the_page_is_typed_by_hand() -> None:
    by_hand = re.sub(r"<!-- results:.*?<!-- end -->", "", PAGE.read_text(), flags=re.DOTALL)
    assert not re.search(r"\d", by_hand)
    assert "results:claims" in PAGE.read_text()


def test_one_seed_never_decides() -> None:
    assert verdict_of([replace(CLEAR, better=np.array([1.0]), worse=np.array([9.0]))])[0] == "not decided"
