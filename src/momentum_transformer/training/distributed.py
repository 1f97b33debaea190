"""One process or many: `torchrun` sets the environment, and the rest of the code asks here.

Processes share the rows of a batch, and with `train.context` the tokens of a sequence: neighbours in rank have parts
of the same sequences.
"""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from ..context import ContextError, context_parallel
from ..errors import UserError


class WorldError(UserError):
    """Processes that cannot work together as they are asked to; the message is for the user."""


@dataclass(frozen=True)
class World:
    rank: int
    size: int
    device: torch.device
    context: int = 1  # processes that share a sequence
    group: dist.ProcessGroup | None = None  # they, and this one

    @property
    def leads(self) -> bool:
        """Whether this process writes files and speaks to the user."""
        return self.rank == 0

    @property
    def shard(self) -> int:
        """The index of this process's share of a batch's rows, of `shards`."""
        return self.rank // self.context

    @property
    def shards(self) -> int:
        return self.size // self.context

    @property
    def part(self) -> int:
        """The index of this process's part of each sequence, of `context`."""
        return self.rank % self.context

    @contextmanager
    def splitting(self) -> Iterator[None]:
        """Inside, models see this process's part of each sequence."""
        if self.group is None:
            yield
            return
        try:
            with context_parallel(self.group):
                yield
        except ContextError as error:
            raise WorldError(f"train.context={self.context}: {error}") from None

    def replicate(self, model: nn.Module) -> nn.Module:
        """The model for data parallelism: the same weights in every process, gradients averaged."""
        return DistributedDataParallel(model) if self.size > 1 else model

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all processes."""
        try:
            if self.size > 1:
                dist.all_reduce(values)
        except RuntimeError as error:
            raise WorldError(f"another process is gone, and says why ({error}); start all of them again") from error
        return values

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""
        return flag if self.size == 1 else bool(self.sum(torch.tensor(float(flag), device=self.device)).item())


def last_sync_only(model: nn.Module, last: bool) -> AbstractContextManager[Any]:
    """Gradients travel between processes once a step, not once a micro-batch."""
    set_sync = getattr(model, "set_requires_gradient_sync", None)
    if set_sync is not None:  # of FSDP2
        set_sync(last)
        return nullcontext()
    no_sync = getattr(model, "no_sync", None)
    return nullcontext() if last or no_sync is None else no_sync()


@contextmanager
def join_world(context: int = 1) -> Iterator[World]:
    """The process group of `torchrun`, or a world of one; `context` processes share a sequence."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size % context:
        raise WorldError(
            f"train.context={context} needs a multiple of {context} processes, not {size}; "
            f"start with torchrun --nproc-per-node {context} -m momentum_transformer train ..."
        )
    cuda = torch.cuda.is_available()
    local = int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    if size == 1:
        yield World(0, 1, device)
        return
    joined = dist.is_initialized()  # by whoever calls us
    if not joined:
        _meet("nccl" if cuda else "gloo")
    try:
        rank, group = dist.get_rank(), None
        for first in range(0, size, context) if context > 1 else ():  # every process names every group
            made = dist.new_group(list(range(first, first + context)))
            group = made if rank // context == first // context else group
        yield World(rank, size, device, context, group)
    finally:
        if not joined:
            dist.destroy_process_group()


def _meet(backend: str) -> None:
    """Begin the process group, under another name after each restart by `torchrun`.

    Its store outlives restarts and still has the addresses of processes that are gone.
    """
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    try:
        store, rank, size = next(rendezvous("env://"))
        dist.init_process_group(backend, store=PrefixStore(f"attempt {attempt}", store), rank=rank, world_size=size)
    except (RuntimeError, ValueError) as error:
        raise WorldError(f"the processes could not meet: {error}; start all of them again, by torchrun") from error
