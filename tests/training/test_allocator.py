"""Freed memory stays with the process that asked for that."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import sys
from pathlib import Path
import torch
from momentum_transformer.training.allocator import allocator, give_back, keep_freed_memory

if sys.argv[1] != "leave":
    keep_freed_memory()
x = torch.ones(1 << 26)
del x
if sys.argv[1] == "give":
    give_back()
print(allocator(), int(Path("/proc/self/statm").read_text().split()[1]) * 4096)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_what_is_freed_is_kept_where_that_was_asked_for() -> None:
    found = {}
    for what in ("keep", "leave", "give"):
        done = subprocess.run([sys.executable, "-c", PROGRAM, what], capture_output=True, text=True, check=True)
        told, resident = done.stdout.rsplit(maxsplit=1)
        found[what] = (told, int(resident))
    assert found["leave"][0] == "the default"
    assert "M_TRIM_THRESHOLD=-1" in found["keep"][0]
    assert found["keep"][1] - found["leave"][1] > 200e6  # of 268 MB
    assert found["keep"][1] - found["give"][1] > 200e6
