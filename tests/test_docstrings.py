"""The docstrings of public functions: what goes in, what comes out, and an example that runs."""

import doctest
import inspect

import pytest
import torch

import momentum_transformer

PUBLIC = {name: getattr(momentum_transformer, name) for name in momentum_transformer.__all__}
FUNCTIONS = {name: value for name, value in PUBLIC.items() if inspect.isfunction(value)}


def test_there_are_public_functions() -> None:
    assert len(FUNCTIONS) >= 10


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_public_function_says_what_it_takes_and_gives(name: str) -> None:
    text = inspect.getdoc(FUNCTIONS[name]) or ""
    assert "\nReturns:\n" in text
    assert "\nExamples:\n    >>> " in text
    assert "\nArgs:\n" in text or not inspect.signature(FUNCTIONS[name]).parameters


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_example_of_a_public_function_runs(name: str) -> None:
    torch.manual_seed(0)
    runner = doctest.DocTestRunner()
    for test in doctest.DocTestFinder(recurse=False).find(FUNCTIONS[name], name, globs=PUBLIC | {"torch": torch}):
        assert test.examples
        runner.run(test)
    assert runner.failures == 0
