"""What a release says of itself: one version, a changelog that has it, how to cite it, and what tests it."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from momentum_transformer import __version__

ROOT = Path(__file__).parent.parent
NUMBER = r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"


def read_yaml(name: str) -> Any:
    return pytest.importorskip("yaml").safe_load((ROOT / name).read_text())


def test_versions_are_semantic_and_fall_from_top_to_bottom() -> None:
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    released = [heading for heading in headings if heading != "Unreleased"]
    matches = [re.fullmatch(rf"{NUMBER} \(\d{{4}}-\d\d-\d\d\)", heading) for heading in released]
    versions = [tuple(int(part) for part in match.groups()) for match in matches if match is not None]
    assert len(versions) == len(released) >= 1
    assert versions == sorted(set(versions), reverse=True)
    assert ".".join(str(part) for part in versions[0]) == __version__


def test_the_version_stands_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" in project["project"]["dynamic"]
    assert project["tool"]["setuptools"]["dynamic"]["version"]["attr"] == "momentum_transformer.version.__version__"
    assert "version" not in read_yaml("CITATION.cff")


def test_the_citation_names_the_paper_and_this_software() -> None:
    citation = read_yaml("CITATION.cff")
    assert {"cff-version", "message", "title", "authors", "type"} <= set(citation)
    assert citation["title"] == "momentum-transformer"
    paper = citation["preferred-citation"]
    assert paper["title"].startswith("Momentum Transformer: Closing the Performance Gap")
    assert [author["family-names"] for author in paper["authors"]] == ["Nguyen", "Baraniuk", "Kirby", "Osher", "Wang"]
    assert (paper["type"], paper["year"]) == ("conference-paper", 2022)


def test_the_workflow_runs_what_every_change_must_pass_on_every_python() -> None:
    workflow = read_yaml(".github/workflows/ci.yml")
    (job,) = workflow["jobs"].values()
    assert job["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13", "3.14"]
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"] == ">=3.11"
