"""Real data where this machine has it."""

from pathlib import Path

import pytest

from momentum_transformer.data.folder import data_root


def official(name: str) -> Path:
    """A file or folder of the data folder; the test skips where there is none."""
    path = data_root(None) / name
    if not path.exists():
        pytest.skip(f"there is no {path}; set MOMENTUM_DATA")
    return path
