"""An allocator that keeps what is freed, as allocators for training do.

glibc's default returns every large tensor to the system and asks for it again; on a virtual machine, where fresh pages
come from the host, that costs more than the attention and grows faster than the length.
"""

import os
import sys

ALLOCATOR = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "68719476736", "MALLOC_TOP_PAD_": "268435456"}


def keeps_freed_memory() -> bool:
    return all(os.environ.get(name) == value for name, value in ALLOCATOR.items())


def keep_freed_memory() -> None:
    """Start again with that allocator, where there is one that listens."""
    if sys.platform == "linux" and not keeps_freed_memory():
        os.execve(sys.executable, sys.orig_argv, {**os.environ, **ALLOCATOR})
