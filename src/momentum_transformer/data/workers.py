"""Processes that make data, and end with the process that wanted it."""

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from threading import Thread


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
