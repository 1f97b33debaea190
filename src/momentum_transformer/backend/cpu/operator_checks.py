"""What native operators rely on: kernels get bare pointers, so every shape, dtype, device and index is checked."""

import torch
from torch import Tensor

from ...ops.tracing import has_tangent


def check_tensor(name: str, x: Tensor | None, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """A tensor of this shape and dtype on the CPU, or none."""
    if x is not None and (x.shape != shape or x.dtype != dtype or not (x.is_cpu or x.is_meta)):
        found = f"{x.dtype} {tuple(x.shape)} on {x.device}"
        raise ValueError(f"{name} must be {dtype} {shape} on the CPU, not {found}")


def check_tokens(shape: tuple[int, int], token_index: Tensor | None, token_count: Tensor | None) -> None:
    """The tokens that are not masked, in a batch of this many sequences and tokens."""
    if (token_index is None) != (token_count is None):
        raise ValueError("token_index and token_count come together")
    check_tensor("token_index", token_index, shape, torch.int32)
    check_tensor("token_count", token_count, shape[:1], torch.int32)


def check_indices(q: Tensor, token_index: Tensor | None, token_count: Tensor | None) -> None:
    """The values of an index of tokens of q (b, h, n, d) that was not made by this package."""
    n = q.shape[2] if q.ndim == 4 else 0
    if not n:
        return  # which is refused for other reasons
    for name, x, most in (("token_index", token_index, n - 1), ("token_count", token_count, n)):
        if x is not None and x.numel() and not 0 <= int(x.min()) <= int(x.max()) <= most:
            raise ValueError(f"{name} must be 0 to {most} where there are {n} tokens")


def check_coefficients(beta: Tensor | None, gamma: Tensor | None, heads: int) -> None:
    if beta is None and gamma is None:
        return
    if beta is None or gamma is None or beta.shape != gamma.shape:
        raise ValueError("beta and gamma come together, of one shape")
    if beta.shape not in ((1,), (heads,)) or not beta.dtype == gamma.dtype == torch.float64:
        raise ValueError(f"beta and gamma must be float64, one or one a head, not {beta.dtype} {tuple(beta.shape)}")


def check_no_tangent(*tensors: Tensor | None) -> None:
    """A graph may have been compiled before its inputs had tangents, which the kernels would drop without a word."""
    if has_tangent(*tensors):
        raise NotImplementedError(
            "native attention has no forward-mode derivatives; compile the call inside `dual_level`, "
            'or with backend="chunked"'
        )
