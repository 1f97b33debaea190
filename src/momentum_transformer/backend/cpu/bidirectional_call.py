"""Bidirectional attention by the native kernels, forward only: a direct call that bypasses PyTorch's dispatcher."""

import torch
from torch import Tensor

from .causal_operator import DTYPES, run
from .library import Problem, TensorView, contiguous_rows, empty_rows, pointer


def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    distance_weights: Tensor | None,
    *,
    key_mask: Tensor | None,
    query_mask: Tensor | None,
    elu: bool,
    normalize: bool,
    eps: float,
) -> Tensor:
    """y (b, h, n, e) for q (b, h, n, d), k (b, h, m, d), v (b, h, m, e), masks (b, m) and (b, n).

    `distance_weights` (1 or h, m + 1) weighs the r-th key from the end in the numerator: float32, or float64 like q.
    """
    (b, h, n, d), (m, e) = q.shape, v.shape[2:]
    q, k, v = contiguous_rows(q), contiguous_rows(k), contiguous_rows(v)
    key_mask, query_mask = (None if mask is None else mask.contiguous() for mask in (key_mask, query_mask))
    y = empty_rows(q if d == e else q.new_empty(b, h, n, e), query_mask)
    problem = Problem(b=b, h=h, n=n, d=d, e=e, elu=elu, normalize=normalize)
    problem.eps, problem.threads, problem.dtype = eps, torch.get_num_threads(), DTYPES.index(q.dtype)
    problem.q, problem.k, problem.v, problem.y = TensorView.of(q), TensorView.of(k), TensorView.of(v), TensorView.of(y)
    problem.key_count, problem.key_mask, problem.query_mask = m, pointer(key_mask), pointer(query_mask)
    if distance_weights is not None:
        problem.coefficient_heads, problem.distance_weights = distance_weights.shape[0], distance_weights.data_ptr()
    run("bidirectional", problem, q.dtype)
    return y
