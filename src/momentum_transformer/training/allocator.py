"""Keep what is freed for the next tensor, as allocators of GPUs do.

glibc returns every large tensor to the system and asks for it again; on a virtual machine, where fresh pages come from
the host, that takes a good part of a training step, and more than attention itself.
"""

import ctypes
import math
import resource
from pathlib import Path
from typing import Any

SETTINGS = {"M_MMAP_MAX": (-4, 0), "M_TRIM_THRESHOLD": (-1, -1), "M_TOP_PAD": (-2, 1 << 28)}  # of malloc.h
_kept = False


def keep_freed_memory() -> None:
    """Make the allocator of this process keep freed memory, if it is glibc's."""
    global _kept
    mallopt = _glibc("mallopt")
    _kept = mallopt is not None and all(mallopt(parameter, value) for parameter, value in SETTINGS.values())


def give_back() -> None:
    """Give free memory back to the system, where the allocator is glibc's."""
    trim = _glibc("malloc_trim")
    if trim is not None:
        trim(0)


def available_memory() -> float:
    """Bytes that this process may still take, of the machine and of its own limit; infinity where neither is known."""
    free = _told("/proc/meminfo", "MemAvailable:", math.inf)
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return free if limit == resource.RLIM_INFINITY else min(free, limit - _told("/proc/self/status", "VmSize:", 0))


def _told(path: str, name: str, otherwise: float) -> float:
    lines = Path(path).read_text().splitlines() if Path(path).exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(name)), otherwise)


def _glibc(name: str) -> Any:
    """A function of glibc; None where there is another C library."""
    try:
        return getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):
        return None


def allocator() -> str:
    """The settings that this process gave its allocator, in words."""
    return " ".join(f"{name}={value}" for name, (_, value) in SETTINGS.items()) if _kept else "the default"
