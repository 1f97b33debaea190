"""Processes that make data, and end with the process that wanted it."""

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import TypeVar

Made = TypeVar("Made")


def made_blocks(make: Callable[[int], Made], blocks: int, workers: int | None) -> list[Made]:
    """`make(0)` to `make(blocks - 1)`, by `workers` processes, by default one a core; a single one is this process."""
    workers = min(blocks, workers or os.cpu_count() or 1)
    if workers == 1:
        return [make(number) for number in range(blocks)]
    with worker_pool(workers) as pool:
        return list(pool.map(make, range(blocks)))


def worker_pool(count: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=_follow_parent)


def _follow_parent() -> None:
    """A parent that was killed cannot stop its workers: they watch it."""
    Thread(target=_wait, daemon=True).start()


def _wait() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
