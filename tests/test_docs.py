"""What the pages say is so: their code runs, their commands are commands, their links lead somewhere, and every name
and test they point to exists."""

import importlib.util
import json
import re
import shlex
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import get_args

import pytest

from momentum_transformer import experiments
from momentum_transformer.arguments import parse
from momentum_transformer.backend.choose import AHEAD
from momentum_transformer.backend.cpu.native_backend import NATIVE
from momentum_transformer.bench import documented
from momentum_transformer.experiments import named_models
from momentum_transformer.experiments.runs import Request
from momentum_transformer.options import Command

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "examples" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LANGUAGES = {"python", "sh", "math", "text"}
TABLE = (ROOT / "docs" / "paper-to-code.md").read_text()
NAMES = sorted(set(re.findall(r"`(momentum_transformer\.[\w.]+)`", TABLE)))
TESTS = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TABLE)))
# these need files, runs or a copy of the package: tests/test_own_data_page.py and tests/test_extending.py run them
ELSEWHERE = {"own-data.md", "extending.md"}


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


CODE = [
    pytest.param(code, id=f"{page.name}-{number}")
    for page in PAGES
    if page.name not in ELSEWHERE
    for number, code in enumerate(blocks(page, "python"))
]


def test_there_is_something_to_check() -> None:
    assert len(CODE) >= 20
    assert len(COMMANDS) >= 60
    assert len(NAMES) >= 15
    assert len(TESTS) >= 15


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_says_its_language(page: Path) -> None:
    fences = re.findall(r"^```(.*)$", page.read_text(), flags=re.MULTILINE)
    assert set(fences[::2]) <= LANGUAGES
    assert set(fences[1::2]) <= {""}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_formulas_within_a_line_survive_the_escapes_of_markdown(page: Path) -> None:
    text = re.sub(r"`[^`]+`", "", prose(page))
    for formula in re.findall(r"(?<![\\$\w])\$(?![\s$])([^$]*[^$\s])\$(?![\w$])", text):
        assert not re.search(r"\\[^a-zA-Z]", formula), f"GitHub takes the backslash away: {formula}"


@pytest.mark.parametrize("code", CODE)
def test_code_of_the_pages_runs(code: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    needed = {"transformers"} if "momentum_transformer.hf" in code else set()
    needed |= {
        package for package in ("transformers", "peft") if re.search(rf"^(import|from) {package}\b", code, re.M)
    }
    for package in needed:
        pytest.importorskip(package, reason=f"{package} is not installed: pip install {package}")
    if "init_process_group" in code:  # what torchrun says to a single process
        alone = {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 0}
        for name, value in alone.items():
            monkeypatch.setenv(name, str(value))
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "page", "exec"), {"__name__": "page"})


def shell_commands(page: Path) -> list[str]:
    """The simple commands of a page: of its blocks and of code within its sentences, without pipes and comments."""
    lines = "".join(blocks(page, "sh")).replace("\\\n", " ").splitlines()
    whole = r"(momentum \w+ \w|torchrun |python -m )[^|…]+"  # a mention such as `momentum train` is none
    lines += [code for code in re.findall(r"`([^`]+)`", prose(page)) if re.fullmatch(whole, code)]
    found = []
    for line in lines:
        words = shlex.shlex(line, posix=True, punctuation_chars=True)
        words.whitespace_split = True
        command: list[str] = []
        for word in [*words, ";"]:
            if set(word) <= set("|&;<>()"):
                found += [command] if command else []
                command = []
            else:
                command.append(word)
    return [shlex.join(command) for command in found]


COMMANDS = sorted({(page.name, command) for page in PAGES for command in shell_commands(page)})


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_commands_of_the_pages_exist(page: str, command: str) -> None:
    program, *words = shlex.split(command)
    if program == "torchrun" and "momentum_transformer" in words:
        program, words = "momentum", words[words.index("momentum_transformer") + 1 :]
    if program == "momentum":
        parse(get_args(Command), words, description="")
    elif program in ("python", "python3") and words[0] == "-m" and words[1] not in ("venv", "pip"):
        assert importlib.util.find_spec(words[1]) is not None
    elif program == "make":
        targets = re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
        assert {word for word in words if "=" not in word} <= set(targets)
    elif program == "pip":
        extras = re.findall(r"\[([\w,]+)\]", command)
        known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        assert {name for extra in extras for name in extra.split(",")} <= set(known)


def test_the_offset_of_the_readme_is_the_upper_half_of_a_picture_of_its_run() -> None:
    offset = re.search(r"^momentum generate RUN --offset (\d+) .*upper halves", (ROOT / "README.md").read_text(), re.M)
    assert offset is not None
    pool = Request("mnist", "momentum").config.data.pool
    assert int(offset[1]) == (28 // pool) ** 2 // 2


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


def anchors(page: Path) -> set[str]:
    """The headings of a page as GitHub and the site name them in addresses."""
    headings = re.findall(r"^#+ (.*)$", prose(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"\w+:", target):
            continue
        name, _, anchor = target.partition("#")
        other = page.parent / name if name else page
        assert other.exists(), target
        assert not anchor or anchor in anchors(other), target


@pytest.mark.parametrize("package", ["", ".nn", ".hf", ".fla"])
def test_the_reference_has_every_public_name(package: str) -> None:
    if package == ".hf":
        pytest.importorskip("transformers")
    page = (ROOT / "docs" / "api.md").read_text()
    for name in importlib.import_module(f"momentum_transformer{package}").__all__:
        assert name == "__version__" or f"::: momentum_transformer{package}.{name}\n" in page, name


def script(path: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_figures_that_move_are_those_of_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = script("docs/figures/animate.py")
    monkeypatch.setattr(figures, "HERE", tmp_path)
    figures.draw()
    drawn = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert drawn == {path.name: path.read_text() for path in (ROOT / "docs" / "figures").glob("moving-*.svg")}


def test_figures_that_move_have_the_colours_of_the_site() -> None:
    styles = script("docs/figures/animate.py").STYLE, (ROOT / "docs" / "assets" / "site.css").read_text()
    figures, site = (re.findall(r"--(\w+): (#[0-9a-f]{6})", style) for style in styles)
    assert figures == [(name, colour) for name, colour in site if name in dict(figures)]
    assert len(figures) == 2 * len(dict(figures)) >= 12  # light, then dark


def test_tables_and_figures_are_those_of_the_committed_results(tmp_path: Path) -> None:
    update = script("docs/update.py")
    tables = update.tables(tmp_path)
    for name in update.PAGES:
        page = (ROOT / name).read_text()
        assert "<!-- results:" in page
        assert update.fill(page, tables) == page, f"{name} is out of date: make docs"
    drawn = {path.name for path in tmp_path.glob("*.svg")}
    assert drawn == {path.name for path in (ROOT / "docs" / "results").glob("*.svg")}


def test_commands_below_tables_name_the_results_wherever_they_were_measured(tmp_path: Path) -> None:
    command = "__main__.py bench --threads 2 --out /tmp/bench18.json --plot /tmp/bench18.svg"
    (tmp_path / "bench.json").write_text(json.dumps({"command": command}))
    wanted = "momentum bench --threads 2 --out results/bench.json --plot docs/results/bench.svg"
    assert documented.read(tmp_path / "bench.json") == {"command": wanted}


def test_architecture_lists_every_package() -> None:
    picture = (ROOT / "docs" / "architecture.md").read_text()
    for path in (ROOT / "src" / "momentum_transformer").glob("*/__init__.py"):
        assert f"  {path.parent.name}/" in picture, path.parent.name


def added_files() -> set[Path]:
    """The files of mixers, experiments and backends that docs/extending.md has added: the page names no such file."""
    backends = [type(backend) for backend in AHEAD if backend is not NATIVE]
    added = [row.settings for row in named_models.ADDED] + [one.config for one in experiments.ADDED] + backends
    return {Path(str(sys.modules[one.__module__].__file__)) for one in added}


@pytest.mark.parametrize("name", ["ops", "layers", "models"])
def test_architecture_lists_every_file(name: str) -> None:
    picture = (ROOT / "docs" / "architecture.md").read_text()
    for path in set((ROOT / "src" / "momentum_transformer" / name).glob("*.py")) - added_files():
        assert path.name == "__init__.py" or f"    {path.name} " in picture, path.name


def test_architecture_names_every_source_file() -> None:
    words = set(re.findall(r"\w+", (ROOT / "docs" / "architecture.md").read_text()))
    sources = {path for path in (ROOT / "src").rglob("*") if path.suffix in (".py", ".h", ".cpp")} - added_files()
    assert [path.name for path in sources if path.stem not in words | {"__init__", "__main__"}] == []


def test_the_readmes_tree_has_every_folder() -> None:
    tree = (ROOT / "README.md").read_text().split("## The tree\n")[1].split("```")[1]
    named = set(re.findall(r"^(?:  )?([\w.]+/?) ", tree, flags=re.MULTILINE))  # lines go on further right
    package = ROOT / "src" / "momentum_transformer"
    folders = {f"{path.name}/" for path in package.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders <= named
    for name in named - {"src/momentum_transformer/"}:
        assert (package / name).exists() or (ROOT / name).exists(), name
