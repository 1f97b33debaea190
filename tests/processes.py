"""Some processes that run one function together, for tests of what they exchange."""

import os
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import start_processes

PATIENCE = 900.0  # seconds


def run_together(function: Callable[..., None], size: int, folder: Path, *arguments: Any) -> None:
    """`function(*arguments)` in `size` processes of one gloo group, as torchrun would start them."""
    meeting = folder / f"meeting of {size}"
    started = start_processes(
        _one, (size, str(meeting), function, arguments), nprocs=size, join=False, start_method="spawn"
    )
    assert started is not None
    end = time.monotonic() + PATIENCE
    while not started.join(timeout=1):
        if time.monotonic() > end:
            for process in started.processes:
                process.kill()
            raise TimeoutError(f"{function.__name__} did not end: processes wait for each other")


def _one(rank: int, size: int, meeting: str, function: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    os.environ.update({"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)})
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=size)
    try:
        function(*arguments)
        dist.barrier()
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        dist.destroy_process_group()
