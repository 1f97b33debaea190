"""Imports run one way, and the public names are what they promise to be."""

import ast
from pathlib import Path

import pytest

import momentum_transformer

ROOT = Path(momentum_transformer.__file__).parent
# what each package may import, besides itself; a package not listed here does not belong in the tree
ALLOWED = {
    "kernels": set(),
    "ops": {"kernels"},
    "layers": {"ops"},
    "models": {"layers", "ops"},
    "generation": {"models", "layers", "ops"},
    "training": set(),
    "data": set(),
    "experiments": {"data", "training", "generation", "models", "layers", "ops"},
    "report": {"experiments", "training"},
    "bench": {"ops", "training", "report"},
    "web": {"experiments", "training", "generation", "models", "ops"},
}


def imported_packages(path: Path, root: Path = ROOT) -> set[str]:
    """First component below `momentum_transformer` of everything the file imports from it."""
    here = path.relative_to(root).with_suffix("").parts
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level:
            base = list(here[: len(here) - node.level])
            names = [
                ["momentum_transformer", *base, *(node.module or "").split("."), alias.name] for alias in node.names
            ]
        elif isinstance(node, ast.ImportFrom):
            names = [[*(node.module or "").split("."), alias.name] for alias in node.names]
        else:
            continue
        found |= {
            parts[1] for parts in ([p for p in name if p] for name in names) if parts[0] == "momentum_transformer"
        }
    return found


MODULES = sorted(path for path in ROOT.rglob("*.py") if path.parent != ROOT)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_run_one_way(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0]
    assert package in ALLOWED, f"{package}/ is not in the picture of docs/architecture.md"
    beyond = imported_packages(path) - {package} - ALLOWED[package] - {"version"}
    assert not beyond, f"{package} must not import {sorted(beyond)}"


def test_the_check_sees_relative_and_absolute_imports(tmp_path: Path) -> None:
    probe = tmp_path / "layers" / "probe.py"
    probe.parent.mkdir()
    probe.write_text(
        "from ..models.encoder import Encoder\nimport momentum_transformer.data.copy\nfrom .block import X\n"
    )
    assert imported_packages(probe, tmp_path) == {"models", "data", "layers"}


@pytest.mark.parametrize("name", momentum_transformer.__all__)
def test_public_names_exist(name: str) -> None:
    assert hasattr(momentum_transformer, name)


def test_files_stay_readable() -> None:
    long = {path.name: count for path in MODULES if (count := len(path.read_text().splitlines())) > 300}
    assert not long, f"split by concept: {long}"
