"""Gradients by the chunked form in PyTorch, which can be differentiated again, or forwards, as kernels cannot."""

from collections.abc import Callable, Sequence

import torch

from ...ops.shapes import Tensor


def mask_of(token_index: Tensor | None, token_count: Tensor | None) -> Tensor | None:
    """Which tokens exist, from their positions and how many there are."""
    if token_index is None or token_count is None:
        return None
    exists = torch.arange(token_index.shape[1], device=token_index.device) < token_count[:, None]
    return torch.zeros_like(token_index, dtype=torch.bool).scatter(1, token_index.long(), exists)


def recomputed_gradients(
    compute: Callable[..., Sequence[Tensor]],
    tensors: Sequence[Tensor | None],
    needed: Sequence[bool],
    grads: Sequence[Tensor | None],
) -> tuple[Tensor | None, ...]:
    """Gradients of `tensors`, where needed, from those of what `compute` makes of them."""
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        # views, so that each is differentiated by itself: q, k, v may be one tensor, or one be made from another
        inputs = [None if x is None else x.view_as(x) for x in tensors]
        outputs = compute(*inputs)
    wanted = [x is not None and need for x, need in zip(inputs, needed, strict=True)]
    differentiated = [x for x, want in zip(inputs, wanted, strict=True) if x is not None and want]
    # an output that depends on none of the wanted inputs has no graph: its gradients are zero
    reached = [(out, d) for out, d in zip(outputs, grads, strict=True) if d is not None and out.requires_grad]
    if not reached:
        return (None,) * len(inputs)
    outs, given = zip(*reached, strict=True)
    found = iter(torch.autograd.grad(outs, differentiated, given, create_graph=again, allow_unused=True))
    return tuple(next(found) if want else None for want in wanted)
