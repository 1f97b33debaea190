"""Keep what is freed for the next tensor, as allocators of GPUs do.

glibc returns every large tensor to the system and asks for it again; on a virtual machine, where fresh pages come from
the host, that takes a good part of a training step, and more than attention itself.
"""

import ctypes
from typing import Any

SETTINGS = {"M_MMAP_MAX": (-4, 0), "M_TRIM_THRESHOLD": (-1, -1), "M_TOP_PAD": (-2, 1 << 28)}  # of malloc.h
_kept = False


def keep_freed_memory() -> None:
    """From now on, in this process, where the allocator is glibc's."""
    global _kept
    mallopt = _glibc("mallopt")
    _kept = mallopt is not None and all(mallopt(parameter, value) for parameter, value in SETTINGS.values())


def give_back() -> None:
    """What is free now goes back to the system, where the allocator is glibc's."""
    trim = _glibc("malloc_trim")
    if trim is not None:
        trim(0)


def _glibc(name: str) -> Any:
    """A function of glibc; None where there is another C library."""
    try:
        return getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):
        return None


def allocator() -> str:
    """What the allocator of this process was told."""
    return " ".join(f"{name}={value}" for name, (_, value) in SETTINGS.items()) if _kept else "the default"
