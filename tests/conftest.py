"""Shapes in the signatures of the equations are checked while the tests run.

Not in the front doors (attention, softmax, connection, adaptive): there, wrong shapes must reach our own messages.
"""

import os
import signal
import zlib
from collections import defaultdict
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

from momentum_transformer.backend.cpu.build import VARIANTS
from momentum_transformer.backend.cpu.library import Missing, native

torch.set_num_threads(1)  # pytest-xdist runs one worker a core
HOURS = 2 * 3600  # seconds


@pytest.hookimpl(tryfirst=True)  # before -m looks at the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test marked `grid`, cases that show no value of a parameter for the first time are slow.

    The order in which they are looked at is mixed, the same in every process, so that values meet in odd pairs.
    What is slow has hours, since on a busy machine it takes many times as long.
    """
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.timeout(HOURS))
    if os.environ.get("MOMENTUM_WHOLE_GRID") == "1":
        return
    shown: dict[str, set[tuple[int, str]]] = defaultdict(set)
    for item in sorted(items, key=lambda item: zlib.crc32(item.nodeid.encode())):
        if isinstance(item, pytest.Function) and item.get_closest_marker("grid"):
            values, seen = set(enumerate(item.callspec.id.split("-"))), shown[item.nodeid.split("[")[0]]
            if values <= seen:
                item.add_marker(pytest.mark.slow)
            seen |= values


@pytest.fixture(scope="session", autouse=True)
def cache_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Encoded data goes where the tests go, never into the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOMENTUM_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(params=VARIANTS)
def instruction_set(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The kernels in every one that this processor has, or in the one that MOMENTUM_ISA names."""
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
