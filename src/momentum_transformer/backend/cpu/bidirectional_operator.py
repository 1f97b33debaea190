"""The native kernels as PyTorch operators: `momentum::bidirectional` and its backward pass.

Autograd belongs to `native_bidirectional.py`. q (b, h, n, d), k (b, h, m, d) and v (b, h, m, e) are on the CPU, in one
of DTYPES; masks are (b, m) and (b, n). `distance_weights` (1 or h, m + 1) weighs the r-th key from the end in the
numerator: float32, or float64 like q, as are the denominators (b, h, n) and the sums s (b, h, d, e) and z (b, h, d)
over all keys, which the backward pass reads. What is checked where is as in `causal_operator.py`.
"""

from typing import Any

import torch
from torch import Tensor

from .causal_operator import DTYPES, run
from .library import Problem, TensorView, contiguous_rows, empty_rows, pointer
from .operator_checks import check_no_tangent, check_tensor

_OPTIONS = "Tensor? key_mask, Tensor? query_mask, bool elu, bool normalize, float eps"
_library = torch.library.Library("momentum", "FRAGMENT")
_library.define(
    f"bidirectional(Tensor q, Tensor k, Tensor v, Tensor? distance_weights, {_OPTIONS}) -> "
    "(Tensor y, Tensor denominator, Tensor s, Tensor z)"
)
_library.define(
    "bidirectional_backward(Tensor dy, Tensor q, Tensor k, Tensor v, Tensor? distance_weights, Tensor y, "
    f"Tensor denominator, Tensor s, Tensor z, {_OPTIONS}, bool learned) -> "
    "(Tensor dq, Tensor dk, Tensor dv, Tensor d_distance_weights)"
)


def _wide(q: Tensor) -> torch.dtype:
    return torch.float64 if q.dtype == torch.float64 else torch.float32


def check_tensors(shapes: dict[str, tuple[Tensor | None, tuple[int, ...]]], dtype: torch.dtype) -> None:
    for name, (x, shape) in shapes.items():
        check_tensor(name, x, shape, dtype)


def _problem(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    distance_weights: Tensor | None,
    key_mask: Tensor | None,
    query_mask: Tensor | None,
    *,
    elu: bool,
    normalize: bool,
    eps: float,
) -> Problem:
    (b, h, n, d), (m, e) = q.shape, v.shape[2:]
    problem = Problem(b=b, h=h, n=n, d=d, e=e, elu=elu, normalize=normalize, eps=eps, key_count=m)
    problem.threads, problem.dtype = torch.get_num_threads(), DTYPES.index(q.dtype)
    problem.q, problem.k, problem.v = TensorView.of(q), TensorView.of(k), TensorView.of(v)
    problem.key_mask, problem.query_mask = pointer(key_mask), pointer(query_mask)
    if distance_weights is not None:
        problem.coefficient_heads, problem.distance_weights = distance_weights.shape[0], pointer(distance_weights)
    return problem


def _output(q: Tensor, v: Tensor) -> Tensor:
    e = v.shape[3]
    return empty_rows(q if q.shape[3] == e else q.new_empty(*q.shape[:3], e), None)


def _kept(q: Tensor, v: Tensor, *, masked: bool) -> tuple[Tensor, ...]:
    """Denominators, s and z, which only the backward pass reads."""
    (b, h, n, d), e, wide = q.shape, v.shape[-1], _wide(q)
    denominator = (q.new_zeros if masked else q.new_empty)((b, h, n), dtype=wide)
    return denominator, q.new_empty((b, h, d, e), dtype=wide), q.new_empty((b, h, d), dtype=wide)


def _contiguous(*tensors: Tensor | None) -> tuple[Tensor | None, ...]:
    return tuple(None if x is None else x.contiguous() for x in tensors)


def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    distance_weights: Tensor | None,
    key_mask: Tensor | None,
    query_mask: Tensor | None,
    elu: bool,
    normalize: bool,
    eps: float,
    keep: bool = True,
) -> tuple[Tensor, ...]:
    """`momentum::bidirectional`; without `keep` y alone."""
    q, k, v = contiguous_rows(q), contiguous_rows(k), contiguous_rows(v)
    if key_mask is not None or query_mask is not None:
        key_mask, query_mask = _contiguous(key_mask, query_mask)
    if distance_weights is not None:
        distance_weights = distance_weights.contiguous()
    problem = _problem(q, k, v, distance_weights, key_mask, query_mask, elu=elu, normalize=normalize, eps=eps)
    y = _output(q, v)
    problem.y = TensorView.of(y)
    kept: tuple[Tensor, ...] = ()
    if keep:
        kept = _kept(q, v, masked=query_mask is not None)
        problem.denominator, problem.s_after, problem.z_after = (x.data_ptr() for x in kept)
    run("bidirectional", problem, q.dtype)
    return y, *kept


def _check(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    distance_weights: Tensor | None,
    key_mask: Tensor | None,
    query_mask: Tensor | None,
) -> None:
    if q.ndim != 4 or v.ndim != 4 or q.dtype not in DTYPES or not (q.numel() and v.numel()):
        raise ValueError(
            f"q and v must have shapes (b, h, n, d) and (b, h, m, e), not empty, in one of {DTYPES}, not "
            f"{tuple(q.shape)}, {tuple(v.shape)} in {q.dtype}"
        )
    (b, h, n, d), (m, e) = q.shape, v.shape[2:]
    check_tensors({"q": (q, (b, h, n, d)), "k": (k, (b, h, m, d)), "v": (v, (b, h, m, e))}, q.dtype)
    check_tensors({"key_mask": (key_mask, (b, m)), "query_mask": (query_mask, (b, n))}, torch.bool)
    heads = 1 if distance_weights is None or distance_weights.shape[:1] != (h,) else h
    check_tensors({"distance_weights": (distance_weights, (heads, m + 1))}, _wide(q))


def _bidirectional(*inputs: Any) -> tuple[Tensor, ...]:
    check_no_tangent(*inputs[:4])
    _check(*inputs[:6])
    return forward(*inputs)


def _bidirectional_fake(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    q = contiguous_rows(q)
    return _output(q, v), *_kept(q, v, masked=rest[2] is not None)


def _backward_outputs(q: Tensor, k: Tensor, v: Tensor, learned: bool) -> tuple[Tensor, ...]:
    b, h, m = k.shape[:3]
    weights = q.new_zeros((b, h, m + 1) if learned else (0,), dtype=_wide(q))
    return *(empty_rows(x, None) for x in (q, k, v)), weights


def backward(
    dy: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    distance_weights: Tensor | None,
    y: Tensor,
    denominator: Tensor,
    s: Tensor,
    z: Tensor,
    key_mask: Tensor | None,
    query_mask: Tensor | None,
    elu: bool,
    normalize: bool,
    eps: float,
    learned: bool,
) -> tuple[Tensor, ...]:
    """`momentum::bidirectional_backward`; `learned`: the distance weights get gradients too, (b, h, m + 1)."""
    q, k, v, dy, y = (contiguous_rows(x) for x in (q, k, v, dy, y))
    distance_weights, key_mask, query_mask = _contiguous(distance_weights, key_mask, query_mask)
    problem = _problem(q, k, v, distance_weights, key_mask, query_mask, elu=elu, normalize=normalize, eps=eps)
    denominator, s, z = denominator.contiguous(), s.contiguous(), z.contiguous()
    outputs = _backward_outputs(q, k, v, learned)
    dq, dk, dv, d_distance_weights = outputs
    problem.y, problem.dy = TensorView.of(y), TensorView.of(dy)
    problem.dq, problem.dk, problem.dv = TensorView.of(dq), TensorView.of(dk), TensorView.of(dv)
    problem.denominator, problem.s, problem.z = pointer(denominator), pointer(s), pointer(z)
    if learned:
        problem.d_distance_weights = d_distance_weights.data_ptr()
    run("bidirectional_backward", problem, q.dtype)
    return outputs


def _bidirectional_backward(*inputs: Any) -> tuple[Tensor, ...]:
    dy, q, k, v, distance_weights, y, denominator, s, z, *masks = inputs[:11]
    _check(q, k, v, distance_weights, *masks)
    if inputs[-1] and distance_weights is None:
        raise ValueError("learned must be False without distance_weights")
    (b, h, n, d), e = q.shape, v.shape[-1]
    check_tensors({"dy": (dy, (b, h, n, e)), "y": (y, (b, h, n, e))}, q.dtype)
    check_tensors({"denominator": (denominator, (b, h, n)), "s": (s, (b, h, d, e)), "z": (z, (b, h, d))}, _wide(q))
    return backward(*inputs)


def _backward_fake(dy: Tensor, q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    return _backward_outputs(contiguous_rows(q), contiguous_rows(k), contiguous_rows(v), rest[-1])


for _name, _real, _fake in (
    ("bidirectional", _bidirectional, _bidirectional_fake),
    ("bidirectional_backward", _bidirectional_backward, _backward_fake),
):
    _library.impl(_name, _real, "CPU")
    torch.library.register_fake(f"momentum::{_name}", _fake)
