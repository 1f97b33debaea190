"""Which of our own backends run here, the fastest first."""

from typing import Any, NamedTuple

import torch

from ..ops.attention import momentum_attention

NAMES = ("native", "chunked", "quadratic", "recurrent")


class BackendStatus(NamedTuple):
    name: str
    available: bool
    reason: str


def backend_statuses() -> tuple[BackendStatus, ...]:
    """Every backend, and why it is or is not available: each is asked for two tokens."""
    return tuple(_status(name) for name in NAMES)


def _status(name: Any) -> BackendStatus:
    x = torch.ones(1, 1, 2, 1)
    try:
        momentum_attention(x, x, x, beta=0.5, backend=name)
    except (ValueError, RuntimeError) as error:
        return BackendStatus(name, False, str(error).splitlines()[0])
    return BackendStatus(name, True, "it runs here")


def active_backend() -> str:
    """The fastest one that is available."""
    return next(status.name for status in backend_statuses() if status.available)
