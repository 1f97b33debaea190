"""Keep what is freed for the next tensor, as allocators of GPUs do.

glibc returns every large tensor to the system and asks for it again; on a virtual machine, where fresh pages come from
the host, that takes a good part of a training step, and more than attention itself.
"""

import ctypes

SETTINGS = {"M_MMAP_MAX": (-4, 0), "M_TRIM_THRESHOLD": (-1, -1), "M_TOP_PAD": (-2, 1 << 28)}  # of malloc.h
_kept = False


def keep_freed_memory() -> None:
    """From now on, in this process, where the allocator is one that listens."""
    global _kept
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc
        return
    _kept = all(mallopt(parameter, value) for parameter, value in SETTINGS.values())


def give_back() -> None:
    """What is free now goes back to the system, where the allocator is glibc's."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):
        return


def allocator() -> str:
    """What the allocator of this process was told."""
    return " ".join(f"{name}={value}" for name, (_, value) in SETTINGS.items()) if _kept else "the default"
