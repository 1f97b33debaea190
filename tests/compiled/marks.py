"""What every test of compiled or exported graphs needs."""

import os

import pytest

CHECKED = os.environ.get("MOMENTUM_CHECK_SHAPES", "1") == "1"  # the compiler cannot trace checks of shapes
COMPILED = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of PyTorch's compiler and of Transformers
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.skipif(CHECKED, reason="needs MOMENTUM_CHECK_SHAPES=0"),
]
