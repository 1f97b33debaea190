"""Which sections the report has."""

from dataclasses import replace
from pathlib import Path

import pytest

from momentum_transformer.experiments import REPRODUCTIONS
from momentum_transformer.experiments.runs import Request
from momentum_transformer.report import contents
from momentum_transformer.report.page import write_report

from .made_up import add_run


def test_every_section_that_a_study_names_exists_and_each_is_named() -> None:
    assert {study.section for study in REPRODUCTIONS.values()} - {""} == set(contents.SECTIONS)


@pytest.mark.parametrize("section", ["", "not written yet"])
def test_a_study_without_a_section_is_left_to_the_runs_side_by_side(
    section: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = replace(REPRODUCTIONS["copy"], name="new", section=section, others=("text",))
    monkeypatch.setattr(contents, "REPRODUCTIONS", {"new": new})
    assert contents.make_sections([]) == []
    assert not contents.has_section(new)


def test_a_run_that_only_a_study_of_many_parts_names_is_shown(tmp_path: Path) -> None:
    request = Request("lra-listops", "gated-delta", "small", 0, ("train.learning_rate=0.001",))
    assert (request.experiment, request.model) in {(name, v.model) for name, v in REPRODUCTIONS["tables"].lines}
    add_run(tmp_path / "runs", request, {"accuracy": 0.4})
    page, left_out = write_report([tmp_path / "runs"], tmp_path / "report")
    assert not left_out
    assert "gated-delta" in page.read_text()


def test_a_scale_that_only_some_parts_of_a_study_have_is_no_obstacle(tmp_path: Path) -> None:
    request = Request("copy", "linear", "medium", 0)
    add_run(tmp_path / "runs", request, {"accuracy": 0.4})
    page, left_out = write_report([tmp_path / "runs"], tmp_path / "report")
    assert not left_out
    assert "scale medium" in page.read_text()
