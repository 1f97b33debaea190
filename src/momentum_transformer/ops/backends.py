"""Which forms of causal attention there are on this machine."""

from typing import NamedTuple

from ..kernels.library import Missing, native


class BackendStatus(NamedTuple):
    name: str
    available: bool
    reason: str


def backends() -> tuple[BackendStatus, ...]:
    """Every backend of `momentum_attention`, the fastest first, with what it is or why it is not there."""
    found = native()
    if isinstance(found, Missing):
        first = BackendStatus("native", False, found.reason)
    else:
        first = BackendStatus("native", True, f"compiled code for {found.variant}; CPU tensors only")
    return (
        first,
        BackendStatus("chunked", True, "PyTorch, linear time, any device"),
        BackendStatus("quadratic", True, "PyTorch, the closed form; a reference"),
        BackendStatus("recurrent", True, "PyTorch, token by token; a reference"),
    )


def active_backend() -> str:
    """What `backend="auto"` runs on a CPU."""
    return next(status.name for status in backends() if status.available)
