"""The docstrings of public names: what goes in, what comes out, and an example that runs."""

import doctest
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import momentum_transformer
from momentum_transformer import backends

PAGE = (Path(__file__).parent.parent / "docs" / "api.md").read_text()
PACKAGES = ("momentum_transformer", "momentum_transformer.ops", "momentum_transformer.nn", "momentum_transformer.fla")
OPTIONAL = "momentum_transformer.hf"  # which needs Transformers


def functions(package: str) -> set[str]:
    module = importlib.import_module(package)
    return {f"{package}.{name}" for name in module.__all__ if inspect.isfunction(getattr(module, name))}


# the methods that the reference shows
SHOWN = re.findall(r"^::: (\S+)\n    options:\n      members: \[(.*)\]$", PAGE, flags=re.MULTILINE)
METHODS = {path: names.split(", ") for path, names in SHOWN}
# every name of the reference, and every function of the packages besides
NAMES = sorted(set(re.findall(r"^::: (\S+)$", PAGE, flags=re.MULTILINE)).union(*map(functions, PACKAGES)))


def value(path: str) -> Any:
    package, _, name = path.rpartition(".")
    if package == OPTIONAL:
        pytest.importorskip("transformers")
        if name in ("accelerate", "restore") and not backends()[0].available:
            pytest.skip("there are no native kernels")
    return getattr(importlib.import_module(package), name)


def test_there_are_public_names() -> None:
    assert len(NAMES) >= 70
    assert len(METHODS) >= 5


@pytest.mark.parametrize("path", NAMES)
def test_a_public_name_says_what_it_takes_and_gives(path: str) -> None:
    found = value(path)
    text = inspect.getdoc(found) or ""
    assert "\nExamples:\n    >>> " in text
    assert inspect.isclass(found) or "\nReturns:\n" in text
    for method in METHODS.get(path, ()):
        assert "\nArgs:\n" in (said := inspect.getdoc(getattr(found, method)) or ""), method
        assert "\nReturns:\n" in said, method
    parameters = set(inspect.signature(found).parameters) - {"kwargs"}
    section = re.search(r"\n(?:Args|Attributes):\n(.*?)(?:\n\n|\Z)", text, flags=re.DOTALL)
    described = set(re.findall(r"^    (\w+): ", section[1], flags=re.MULTILINE)) if section else set()
    assert bool(described) == bool(parameters)
    assert described <= parameters
    elsewhere = re.search(r"The other arguments are those of `(\w+)`\.", text)
    if elsewhere:
        assert f"{path.rpartition('.')[0]}.{elsewhere[1]}" in NAMES
    elif path != f"{OPTIONAL}.MomentumConfig":  # whose sizes have the names that they have in Transformers
        assert described == parameters


@pytest.mark.parametrize("path", NAMES)
def test_the_example_of_a_public_name_runs(path: str) -> None:
    torch.manual_seed(0)
    found = value(path)
    known = vars(momentum_transformer) | vars(importlib.import_module(path.rpartition(".")[0])) | {"torch": torch}
    runner = doctest.DocTestRunner()
    for test in doctest.DocTestFinder(recurse=False).find(found, path, globs=known):
        assert test.examples
        runner.run(test)
    assert runner.failures == 0
