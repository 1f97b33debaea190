"""One process or many: `torchrun` sets the environment, and the rest of the code asks here."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


@dataclass(frozen=True)
class World:
    rank: int
    size: int
    device: torch.device

    @property
    def leads(self) -> bool:
        """Whether this process writes files and speaks to the user."""
        return self.rank == 0

    def wrap(self, model: nn.Module) -> nn.Module:
        return DistributedDataParallel(model) if self.size > 1 else model

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all processes."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def any(self, flag: bool) -> bool:
        """Whether the flag is up in any process."""
        return flag if self.size == 1 else bool(self.sum(torch.tensor(float(flag), device=self.device)).item())


@contextmanager
def join_world() -> Iterator[World]:
    """The process group of `torchrun`, or a world of one."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    cuda = torch.cuda.is_available()
    local = int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    if size == 1:
        yield World(0, 1, device)
        return
    dist.init_process_group("nccl" if cuda else "gloo")
    try:
        yield World(dist.get_rank(), size, device)
    finally:
        dist.destroy_process_group()
