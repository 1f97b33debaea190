"""Which sections the report has."""

from dataclasses import replace

import pytest

from momentum_transformer.experiments import REPRODUCTIONS
from momentum_transformer.report import contents


def test_every_section_that_a_study_names_exists_and_each_is_named() -> None:
    assert {study.section for study in REPRODUCTIONS.values()} - {""} == set(contents.SECTIONS)


def test_a_study_without_a_section_is_left_to_the_runs_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    new = replace(REPRODUCTIONS["copy"], name="new", section="", others=("text",))
    monkeypatch.setattr(contents, "REPRODUCTIONS", {"new": new})
    assert contents.make_sections([]) == []
    assert not contents.has_section(new)
