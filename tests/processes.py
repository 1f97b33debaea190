"""Some processes that run one function together, for tests of what they exchange."""

import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import start_processes


def run_together(function: Callable[..., None], size: int, folder: Path, *arguments: Any) -> None:
    """`function(*arguments)` in `size` processes of one gloo group; fails with what the first one says that fails."""
    start_processes(_one, (size, str(folder), function, arguments), nprocs=size, join=True, start_method="spawn")


def _one(rank: int, size: int, folder: str, function: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size))
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=size)
    try:
        function(*arguments)
        dist.barrier()
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        dist.destroy_process_group()
