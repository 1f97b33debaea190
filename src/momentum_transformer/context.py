"""One sequence over many processes: each has a part of it, in the order of their ranks.

What goes from part to part is small: a state, and how a part changes the state before it. Both travel by one exchange,
`from_before`, whose gradient travels back; everything else is arithmetic that autograd knows.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812 (the field's name for it)
from torch import Tensor

from .errors import UserError
from .ops.tracing import asked_while_tracing

P = ParamSpec("P")
R = TypeVar("R")


class ContextError(UserError, ValueError):
    """What needs a whole sequence, or processes; the message is for the user."""


@dataclass(frozen=True)
class Context:
    """The processes that share a sequence, and which of them this one is."""

    group: dist.ProcessGroup
    rank: int
    size: int

    def from_before(self, x: Tensor, distance: int = 1) -> Tensor:
        """The x of the process `distance` ranks before this one; zeros where there is none."""
        shifted: Tensor = _Shift.apply(x, self, distance)
        return shifted

    def state_before(self, transition: Tensor, state: Tensor) -> Tensor:
        """The state before this part of the sequence, when every part leaves transition @ before + state (..., p, c).

        An exclusive scan over the ranks in ⌈log₂(ranks - 1)⌉ + 1 exchanges. Before the first part there is nothing.
        """
        width = transition.shape[-1]
        part = self.from_before(torch.cat([transition, state], -1))
        for distance in self.distances():
            earlier = self.from_before(part, distance)
            part = part[..., :width] @ earlier + F.pad(part[..., width:], (width, 0))
        return part[..., width:]

    def distances(self) -> list[int]:
        """Of the exchanges of `state_before` after its first one."""
        return [2**i for i in range((self.size - 2).bit_length())]

    def first_position(self, length: int, device: torch.device) -> int:
        """How many tokens the parts before this one have, `length` being those of this part."""
        lengths = torch.zeros(self.size, dtype=torch.int64, device=device)
        lengths[self.rank] = length
        dist.all_reduce(lengths, group=self.group)
        return int(lengths[: self.rank].sum())


_CURRENT: ContextVar[Context | None] = ContextVar("context", default=None)


@asked_while_tracing
def current_context() -> Context | None:
    """The processes among which the sequences of this moment are split; None where they are whole."""
    return _CURRENT.get()


@contextmanager
def context_parallel(group: dist.ProcessGroup | None = None) -> Iterator[Context | None]:
    """Inside, every process of `group` (all, by default) gives its part of each sequence, in the order of ranks.

    Parts may differ in length. All processes make the same calls in the same order. Gradients of parameters are those
    of this part's use of them: their sum over the processes is that of the whole, as data parallelism makes it.

    Args:
        group: the processes that share each sequence; all of them by default.

    Returns:
        A context manager: what runs inside has parts of sequences.

    Examples:
        >>> def train(encoder, loss, x, targets, start, stop):  # in each process, with bounds of its own
        ...     with context_parallel():
        ...         y = encoder(x[:, start:stop])  # this part of what encoder(x) is
        ...         loss(y, targets[:, start:stop]).backward()
    """
    if not dist.is_initialized():
        raise ContextError("context_parallel needs processes: start with torchrun, and call init_process_group")
    group = dist.group.WORLD if group is None else group
    assert group is not None
    context = Context(group, dist.get_rank(group), dist.get_world_size(group))
    with _entered(context if context.size > 1 else None) as entered:
        yield entered


@contextmanager
def _entered(context: Context | None) -> Iterator[Context | None]:
    token = _CURRENT.set(context)
    try:
        yield context
    finally:
        _CURRENT.reset(token)


def in_this_context(function: Callable[P, R]) -> Callable[P, R]:
    """The function as it is now, also when it is run again later, from a backward pass."""
    context = current_context()
    if context is None:
        return function

    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with _entered(context):
            return function(*args, **kwargs)

    return run


def refuse_split(what: str) -> None:
    """One line for what needs a whole sequence."""
    if current_context() is not None:
        raise ContextError(f"{what} needs the whole sequence in one process; use another model, or do not split it")


class _Shift(torch.autograd.Function):
    """From rank to rank + distance; gradients the other way."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, context: Context, distance: int) -> Tensor:
        ctx.context, ctx.distance = context, distance
        return _shifted(x, context, distance)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _shifted(grad, ctx.context, -ctx.distance), None, None


def _shifted(x: Tensor, context: Context, distance: int) -> Tensor:
    """x goes `distance` ranks up, and comes from as many ranks below; from nowhere come zeros."""
    x, received = x.contiguous(), torch.zeros_like(x, memory_format=torch.contiguous_format)
    above, below = context.rank + distance, context.rank - distance
    operations = []
    if 0 <= above < context.size:
        operations.append(dist.P2POp(dist.isend, x, group=context.group, group_peer=above))
    if 0 <= below < context.size:
        operations.append(dist.P2POp(dist.irecv, received, group=context.group, group_peer=below))
    for work in dist.batch_isend_irecv(operations) if operations else ():
        work.wait()
    return received
