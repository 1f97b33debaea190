"""Derivatives of what native code computes, by the same computation in PyTorch: again, or forwards."""

from collections.abc import Callable, Sequence

import torch

from ...ops.shapes import Tensor
from ...ops.tracing import transformed

Function = Callable[..., tuple[Tensor, ...]]


def natively_differentiable() -> bool:
    """Whether native code may compute gradients: nothing will differentiate them once more."""
    return not (torch.is_grad_enabled() or transformed())


def mask_of(token_index: Tensor | None, token_count: Tensor | None) -> Tensor | None:
    """The mask (b, n) of the tokens that exist, from their positions and their numbers."""
    if token_index is None or token_count is None:
        return None
    exists = torch.arange(token_index.shape[1], device=token_index.device) < token_count[:, None]
    return torch.zeros_like(token_index, dtype=torch.bool).scatter(1, token_index.long(), exists)


def gradients(
    function: Function, inputs: Sequence[Tensor | None], needed: Sequence[bool], grads: Sequence[Tensor | None]
) -> tuple[Tensor | None, ...]:
    """The gradients of the inputs that need one; `grads` are those of the outputs of `function`."""
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        # views, so that each is differentiated by itself: one input may be made from another
        views = [None if x is None else x.view_as(x) for x in inputs]
        outputs = function(*views)
    wanted = [x is not None and need for x, need in zip(views, needed, strict=True)]
    differentiated = [x for x, want in zip(views, wanted, strict=True) if x is not None and want]
    # an output that depends on none of the wanted inputs has no graph: its gradients are zero
    reached = [(y, dy) for y, dy in zip(outputs, grads, strict=True) if dy is not None and y.requires_grad]
    if not reached:
        return (None,) * len(views)
    ys, dys = zip(*reached, strict=True)
    found = iter(torch.autograd.grad(ys, differentiated, dys, create_graph=again, allow_unused=True))
    return tuple(next(found) if want else None for want in wanted)
