"""The notebooks run from top to bottom, at tiny scale, and are committed without outputs.

Cells are run in this process, one after the other, as a kernel would: they are plain Python, without magics.
"""

import json
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
TINY: dict[str, dict[str, Any]] = {  # in place of what the cell tagged "parameters" says
    "mechanism": {"TOKENS": 20, "WIDTHS": (8, 16)},
    "train_and_sample": {"STEPS": 3, "WIDTH": 16, "COUNT": 4},
    "your_own_model": {"LENGTHS": (16, 32)},
}


def cells(path: Path, kind: str) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == kind]


def is_parameters(cell: dict[str, Any]) -> bool:
    return "parameters" in cell["metadata"].get("tags", [])


def test_every_notebook_has_a_tiny_scale() -> None:
    assert {path.stem for path in NOTEBOOKS} == set(TINY)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in cells(path, "code"):
        exec(compile("".join(cell["source"]), f"{path.name}, {cell['id']}", "exec"), names)
        if is_parameters(cell):
            assert set(TINY[path.stem]) <= set(names)
            names |= TINY[path.stem]
    import matplotlib.pyplot as plt

    assert len(plt.get_fignums()) >= 1
    plt.close("all")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_valid_and_has_no_outputs(path: Path) -> None:
    notebook = json.loads(path.read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    assert notebook["cells"][0]["cell_type"] == "markdown"
    assert [is_parameters(cell) for cell in cells(path, "code")].index(True) == 0
    for cell in cells(path, "code"):
        assert cell["outputs"] == []
        assert cell["execution_count"] is None
        assert not any(line.lstrip().startswith(("%", "!")) for line in cell["source"])
