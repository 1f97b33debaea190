"""Ranks as threads of one process, which exchange what gloo would: the same graph, without starting processes."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from momentum_transformer import context

PATIENCE = 60.0  # seconds until a rank that waits for another gives up


class Ranks:
    """Takes the place of a process group."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.mine = threading.local()
        self._barrier = threading.Barrier(size, timeout=PATIENCE)
        self._given: list[Any] = [None] * size

    def exchanged(self, x: Tensor) -> list[Tensor]:
        """What each rank gives, to all of them."""
        self._given[self.mine.rank] = x.detach().clone()
        self._barrier.wait()
        given = list(self._given)
        self._barrier.wait()
        return given

    def shifted(self, x: Tensor, among: context.Context, distance: int) -> Tensor:
        given, below = self.exchanged(x), among.rank - distance
        assert len({one.shape for one in given}) == 1, "ranks give tensors of different shapes"
        return given[below] if 0 <= below < self.size else torch.zeros_like(x)

    def all_reduce(self, x: Tensor, group: Any = None) -> None:
        x.copy_(torch.stack(self.exchanged(x)).sum(0))

    def run(self, function: Callable[..., None], *arguments: Any) -> None:
        """`function(*arguments)` in every rank; the first failure is that of the caller."""
        failures: list[BaseException] = []

        def work(rank: int) -> None:
            self.mine.rank = rank
            try:
                function(*arguments)
            except BaseException as failure:
                failures.append(failure)
                self._barrier.abort()

        threads = [threading.Thread(target=work, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        own = [failure for failure in failures if not isinstance(failure, threading.BrokenBarrierError)]
        if failures:
            raise (own or failures)[0]


def threads_for_processes(size: int, monkeypatch: pytest.MonkeyPatch) -> Ranks:
    """Until the end of a test, ranks that are found are those of threads."""
    made = Ranks(size)
    monkeypatch.setattr(context, "_shifted", made.shifted)
    monkeypatch.setattr(dist, "all_reduce", made.all_reduce)
    monkeypatch.setattr(dist, "get_rank", lambda group=None: made.mine.rank)
    monkeypatch.setattr(dist, "get_world_size", lambda group=None: made.size)
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    return made
