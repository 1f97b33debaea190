"""The precision of training: which one a configuration means on this device, and autocast for it."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from .config import TrainConfig
from .distributed import World


def precision_of(config: TrainConfig, world: World) -> str:
    """What `train.precision` means on this device."""
    if config.precision != "mixed":
        return config.precision
    return "float16" if world.device.type == "cuda" else "float32"


def autocast(config: TrainConfig, world: World) -> AbstractContextManager[Any]:
    precision = precision_of(config, world)
    if precision == "float32":
        return nullcontext()
    return torch.autocast(world.device.type, getattr(torch, precision))
