"""Imports run one way, and the public names are what they promise to be."""

import ast
from collections import Counter
from pathlib import Path

import pytest

import momentum_transformer

ROOT = Path(momentum_transformer.__file__).parent
ANYWHERE = {"version", "install", "errors", "bounded", "durable"}  # what everything may import
# what each package, and each file at the root, may import besides itself; anything else does not belong in the tree
ALLOWED = {
    "version": set(),
    "errors": set(),
    "bounded": set(),
    "durable": set(),
    "install": set(),
    "ops": set(),
    "context": {"ops"},
    "backend": {"context", "ops"},
    "attention": {"backend", "context", "ops"},
    "fla": {"attention", "ops"},
    "layers": {"attention", "backend", "context", "ops"},
    "models": {"backend", "context", "layers", "ops"},
    "decoding": {"models", "layers", "attention", "backend", "ops"},
    "generation": {"decoding", "models", "layers", "ops"},
    "training": {"context"},
    "data": set(),
    "experiments": {"data", "training", "generation", "models", "layers", "ops"},
    "report": {"experiments", "training"},
    "nn": {"attention", "layers"},
    "hf": {"experiments", "training", "data", "models", "layers", "attention", "backend", "ops"},
    "bench": {
        *(
            "attention",
            "backend",
            "context",
            "data",
            "decoding",
            "experiments",
            "generation",
            "hf",
            "layers",
            "models",
        ),
        *("ops", "report", "training"),
    },
    "web": {"experiments", "training", "generation", "models", "ops"},
    "cli": {"arguments", "commands", "options"},
    "arguments": set(),
    "options": set(),
    "commands": {"options", "bench", "data", "experiments", "generation", "hf", "report", "training", "web"},
    "__main__": {"cli"},
    "loading": {"experiments", "hf", "training"},
    "__init__": {"attention", "backend", "context", "layers", "loading", "models", "ops"},
}
# inside ops a file imports only files before it
OPS = (
    *(
        "shapes",
        "tracing",
        "memo",
        "autocast",
        "state",
        "checks",
        "documents",
        "geometric",
        "feature_maps",
        "coefficients",
    ),
    *("convolution", "row_norm", "recurrent", "pair_weights", "chunked", "quadratic", "bidirectional"),
    *("softmax", "connection", "adaptive", "heavy_ball", "lsh", "random_features", "__init__"),
)
MOST_LINES = 300  # of a file
MOST_STATEMENT_LINES = 60  # of a function, without its signature and docstring
MOST_COLUMNS = 120  # of a line of C++


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


CAUGHT = {
    "DroppedError",
    "HeldError",
    "PickleError",
    "UnavailableError",
}  # errors that the package catches itself, always
MODULES = sorted(ROOT.rglob("*.py"))
COMMANDS = ("drawing", "translating", "predicting", "writing", "reproduce", "listing", "shipping", "queue", "sweep")
CPLUSPLUS = sorted(path for path in ROOT.rglob("*") if path.suffix in (".h", ".cpp"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_run_one_way(path: Path) -> None:
    package = path.relative_to(ROOT).with_suffix("").parts[0]
    assert package in ALLOWED, f"{package} is not in the picture of docs/architecture.md"
    beyond = imported_packages(path) - {package} - ALLOWED[package] - ANYWHERE
    assert not beyond, f"{package} must not import {sorted(beyond)}"


@pytest.mark.parametrize("path", sorted((ROOT / "ops").glob("*.py")), ids=lambda path: path.stem)
def test_files_of_ops_import_only_those_before_them(path: Path) -> None:
    assert path.stem in OPS, f"ops/{path.name} has no place in the order of ops"
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    imported = {(node.module or "").split(".")[0] for node in nodes if node.level == 1}
    later = imported - set(OPS[: OPS.index(path.stem)])
    assert not later, f"ops/{path.name} must not import {sorted(later)}"


def test_the_check_sees_relative_and_absolute_imports(tmp_path: Path) -> None:
    probe = tmp_path / "layers" / "probe.py"
    probe.parent.mkdir()
    probe.write_text(
        "from ..models.encoder import Encoder\nimport momentum_transformer.data.copy_sequences\nfrom .block import X\n"
    )
    assert imported_packages(probe, tmp_path) == {"models", "data", "layers"}


@pytest.mark.parametrize("name", momentum_transformer.__all__)
def test_public_names_exist(name: str) -> None:
    assert hasattr(momentum_transformer, name)


def test_files_stay_readable() -> None:
    counted = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in MODULES + CPLUSPLUS}
    long = {name: count for name, count in counted.items() if count > MOST_LINES}
    assert not long, f"split by concept: {long}"


def test_functions_fit_a_screen() -> None:
    tall = []
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                documented = ast.get_docstring(node) is not None and len(node.body) > 1
                first = node.body[1 if documented else 0].lineno
                if (node.end_lineno or first) - first >= MOST_STATEMENT_LINES:
                    tall.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}")
    assert not tall, f"split by what they do: {tall}"


@pytest.mark.parametrize("path", CPLUSPLUS, ids=lambda path: path.name)
def test_every_file_of_cplusplus_says_what_it_is_for_in_lines_that_fit(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert lines[0].startswith("// ")
    wide = [number for number, line in enumerate(lines, start=1) if len(line) > MOST_COLUMNS]
    assert not wide, f"{path.name} has long lines: {wide}"


def test_a_basename_stands_once_in_the_tree() -> None:
    counted = Counter(path.name for path in MODULES if path.stem not in ("__init__", "__main__"))
    assert not {name for name, count in counted.items() if count > 1}


def test_errors_for_users_have_one_base() -> None:
    kinds: dict[str, set[str]] = {"UserError": set()}  # name → names of its bases, of every class that ends so
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and node.name.endswith("Error"):
                kinds.setdefault(node.name, set()).update(ast.unparse(base) for base in node.bases)

    def is_for_users(name: str) -> bool:
        return name == "UserError" or any(is_for_users(base) for base in kinds.get(name, ()))

    assert {name for name in kinds if not is_for_users(name)} == CAUGHT


def test_commands_are_in_commands_and_not_in_experiments() -> None:
    assert {path.stem for path in (ROOT / "commands").glob("*.py")} > set(COMMANDS)
    assert not {path.stem for path in (ROOT / "experiments").rglob("*.py")} & set(COMMANDS)
    talking = [path.name for path in (ROOT / "experiments").rglob("*.py") if "`momentum " in path.read_text()[:200]]
    assert not talking, f"a command's work belongs in commands: {talking}"


def test_an_experiment_of_several_files_is_a_folder() -> None:
    files = [path.stem for path in (ROOT / "experiments").glob("*.py")]
    parts = [name for name in files if any(name.startswith(f"{other}_") for other in files if other != name)]
    assert not parts, f"make folders of {parts}"
