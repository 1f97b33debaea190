"""The kernels in one instruction set after the other."""

import os
from collections.abc import Iterator

import pytest

from momentum_transformer.backend.cpu.build import VARIANTS
from momentum_transformer.backend.cpu.library import Missing, native


@pytest.fixture(params=VARIANTS)
def instruction_set(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Every one that this processor has, or the one that MOMENTUM_ISA names."""
    named = os.environ.get("MOMENTUM_ISA", request.param)
    if named != request.param:
        pytest.skip(f"MOMENTUM_ISA is {named}")
    monkeypatch.setenv("MOMENTUM_ISA", request.param)
    native.cache_clear()
    found = native()
    if isinstance(found, Missing):
        native.cache_clear()
        pytest.skip(found.reason)
    yield found.variant
    native.cache_clear()
