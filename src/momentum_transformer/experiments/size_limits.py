"""How large data and batches may be: what no machine can hold is refused before anything is made of it."""

from typing import Any

import torch

from ..training.allocator import available_memory
from .configuration import ConfigurationError, paths

MOST = 2**20  # of any whole number in data.*
MOST_EXAMPLES = 10**7
EXAMPLES = ("examples", "train", "validation", "test")
LENGTHS = ("length", "context", "blanks", "points")  # tokens of every sequence, or fewer than it has


def check_sizes(config: Any) -> None:
    """Refuse sizes of data beyond all use, and a table of positions that memory cannot hold."""
    for path, value in paths(config).items():
        part, _, name = path.partition(".")
        most = MOST_EXAMPLES if name in EXAMPLES else MOST
        for number in value if isinstance(value, list) else [value]:
            if part == "data" and isinstance(number, int) and number > most:
                raise ConfigurationError(f"{path} must be at most {most:,}, not {number:,}")
    _check_memory(config, rows=1)


def check_batch(config: Any, processes: int) -> None:
    """Refuse a batch of which not even the input of one layer fits into memory; GPUs have their own."""
    check_sizes(config)
    if hasattr(config.data, "buckets") or torch.cuda.is_available():  # sequences may be shorter than data.length
        return
    _check_memory(config, rows=config.train.batch_size // (config.train.accumulate * processes))


def _check_memory(config: Any, rows: int) -> None:
    tokens = max((getattr(config.data, name, 1) for name in LENGTHS), default=1)
    width, free = config.model.width, available_memory()
    needed = 4 * rows * tokens * width
    if needed > free:
        raise ConfigurationError(
            f"a batch of {rows:,} sequences of {tokens:,} tokens at width {width:,} needs {needed / 2**30:,.1f} GB "
            f"for the input of one layer, and {free / 2**30:,.1f} GB are free; make data, batch or model "
            "smaller, or raise train.accumulate"
        )
