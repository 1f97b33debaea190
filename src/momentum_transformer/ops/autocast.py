"""Where autocast must not reach: states and their accumulation are float32 or wider, whatever surrounds them."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch


def full_precision(device: torch.device) -> AbstractContextManager[Any]:
    """Autocast off, where it is on."""
    if not (torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type)):
        return nullcontext()
    return torch.autocast(device.type, enabled=False)
