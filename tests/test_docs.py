"""What the pages say is so: README's code runs, and every name and test they point to exists."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CODE = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
TRANSFORMERS = re.findall(
    r"```python\n(.*?)```", (ROOT / "docs" / "transformers-models.md").read_text(), flags=re.DOTALL
)
PYTHON = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text(), flags=re.DOTALL)
PACKAGE_PAGES = {"transformers": ROOT / "docs" / "transformers.md"}  # code that needs the package of this name
TABLE = (ROOT / "docs" / "paper-to-code.md").read_text()
NAMES = sorted(set(re.findall(r"`(momentum_transformer\.[\w.]+)`", TABLE)))
TESTS = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TABLE)))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_there_is_something_to_check() -> None:
    assert len(CODE) >= 3
    assert len(NAMES) >= 15
    assert len(TESTS) >= 15


@pytest.mark.parametrize("number", range(len(CODE)))
def test_readme_code_runs(number: int) -> None:
    exec(compile(CODE[number], f"README block {number}", "exec"), {})


@pytest.mark.parametrize("number", range(len(PYTHON)))
def test_code_of_the_page_about_python_runs(number: int) -> None:
    exec(compile(PYTHON[number], f"python block {number}", "exec"), {})


@pytest.mark.parametrize("number", range(len(TRANSFORMERS)))
def test_code_of_our_models_in_transformers_runs(number: int) -> None:
    code = TRANSFORMERS[number]
    for package in ("transformers", "peft"):
        if package in code or (package == "transformers" and "momentum_transformer.hf" in code):
            pytest.importorskip(package, reason=f"{package} is not installed: pip install {package}")
    exec(compile(code, f"transformers-models block {number}", "exec"), {})


@pytest.mark.parametrize("package", PACKAGE_PAGES)
def test_code_of_a_page_about_a_package_runs(package: str) -> None:
    pytest.importorskip(package)
    for code in re.findall(r"```python\n(.*?)```", PACKAGE_PAGES[package].read_text(), flags=re.DOTALL):
        exec(compile(code, package, "exec"), {})


@pytest.mark.parametrize("name", NAMES)
def test_every_name_in_paper_to_code_imports(name: str) -> None:
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[end:]:
            found = getattr(found, attribute)
        return
    pytest.fail(f"{name} does not import")


@pytest.mark.parametrize(("path", "name"), TESTS)
def test_every_test_in_paper_to_code_exists(path: str, name: str) -> None:
    assert f"def {name}(" in (ROOT / path).read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_tables_and_figures_are_those_of_the_committed_results(tmp_path: Path) -> None:
    specification = importlib.util.spec_from_file_location("update", ROOT / "docs" / "update.py")
    assert specification is not None
    assert specification.loader is not None
    update = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(update)
    tables = update.tables(tmp_path)
    for name in update.PAGES:
        page = (ROOT / name).read_text()
        assert "<!-- results:" in page
        assert update.fill(page, tables) == page, f"{name} is out of date: make docs"
    drawn = {path.name for path in tmp_path.glob("*.svg")}
    assert drawn == {path.name for path in (ROOT / "docs" / "results").glob("*.svg")}


def test_architecture_lists_every_package() -> None:
    picture = (ROOT / "docs" / "architecture.md").read_text()
    for path in (ROOT / "src" / "momentum_transformer").glob("*/__init__.py"):
        assert f"  {path.parent.name}/" in picture, path.parent.name


@pytest.mark.parametrize("name", ["ops", "layers", "models"])
def test_architecture_lists_every_file(name: str) -> None:
    picture = (ROOT / "docs" / "architecture.md").read_text()
    for path in (ROOT / "src" / "momentum_transformer" / name).glob("*.py"):
        assert path.name == "__init__.py" or f"    {path.name} " in picture, path.name
