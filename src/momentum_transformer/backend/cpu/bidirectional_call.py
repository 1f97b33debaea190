"""Attention without causal order in native code, forward only: a call without PyTorch's dispatcher."""

import torch
from torch import Tensor

from .causal_operator import DTYPES, run
from .library import Problem, Rows, aligned, empty_rows, pointer


def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    by_age: Tensor | None,
    *,
    key_mask: Tensor | None,
    query_mask: Tensor | None,
    elu: bool,
    normalize: bool,
    eps: float,
) -> Tensor:
    """y (b, h, n, e) for q (b, h, n, d), k (b, h, m, d), v (b, h, m, e), masks (b, m) and (b, n).

    `by_age` (1 or h, m + 1) weighs the r-th key from the end in the numerator: float32, or float64 like q.
    """
    (b, h, n, d), (m, e) = q.shape, v.shape[2:]
    q, k, v = aligned(q), aligned(k), aligned(v)
    key_mask, query_mask = (None if mask is None else mask.contiguous() for mask in (key_mask, query_mask))
    y = empty_rows(q if d == e else q.new_empty(b, h, n, e), query_mask)
    problem = Problem(b=b, h=h, n=n, d=d, e=e, elu=elu, normalize=normalize)
    problem.eps, problem.threads, problem.dtype = eps, torch.get_num_threads(), DTYPES.index(q.dtype)
    problem.q, problem.k, problem.v, problem.y = Rows.of(q), Rows.of(k), Rows.of(v), Rows.of(y)
    problem.m, problem.key_mask, problem.query_mask = m, pointer(key_mask), pointer(query_mask)
    if by_age is not None:
        problem.table_heads, problem.by_age = by_age.shape[0], by_age.data_ptr()
    run("bidirectional", problem, q.dtype)
    return y
