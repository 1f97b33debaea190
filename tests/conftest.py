"""Shapes in the signatures of the equations are checked while the tests run.

Not in the front doors (attention, softmax, connection, adaptive): there, wrong shapes must reach our own messages.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

# A shell that starts the tests in the background has these ignored, and children inherit that; the tests send them.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Some virtual machines announce AMX and then refuse its instructions, and bfloat16 layers die with them.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
# Real data sets are looked for in $MOMENTUM_DATA, else beside the checkout; tests that need them skip without.
if (DATA := Path(__file__).parents[2] / "shared" / "data").is_dir():
    os.environ.setdefault("MOMENTUM_DATA", str(DATA))

import pytest
import torch
from jaxtyping import install_import_hook

EQUATIONS = (
    "bidirectional",
    "chunked",
    "geometric",
    "heavy_ball",
    "lsh",
    "pair_weights",
    "quadratic",
    "random_features",
    "recurrent",
)
if os.environ.get("MOMENTUM_CHECK_SHAPES", "1") == "1":
    install_import_hook([f"momentum_transformer.ops.{name}" for name in EQUATIONS], "beartype.beartype")

torch.set_num_threads(1)  # pytest-xdist runs one worker a core


@pytest.fixture(scope="session", autouse=True)
def cache_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Encoded data goes where the tests go, never into the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOMENTUM_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
