"""The native kernels as PyTorch operators: `momentum::causal` and its backward pass.

Autograd belongs to `autograd.py`. q, k, v are (b, h, n, d) on the CPU, in one of DTYPES; a state is
(b, h, planes, d, e) and (b, h, d), float32, or float64 like q. β and γ are float64, (1,) or (h,); without them
attention is linear.

The operators check all that they are given. `forward` and `backward` do not: calls of the front doors, which have
checked their arguments, come to them at once.
"""

import ctypes
import os
from typing import Any

import torch
from torch import Tensor

from .library import Missing, Problem, TensorView, contiguous_rows, empty_rows, native, pointer
from .native_call import call
from .operator_checks import check_coefficients, check_indices, check_no_tangent, check_tensor, check_tokens

# The forward pass saves the state before each segment for the backward pass, and threads split sequences by segments.
SEGMENT = 256  # tokens
CORES = os.cpu_count() or 1
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)  # in the order of native/problem.h

_COEFFICIENTS = "Tensor? beta, Tensor? gamma, Tensor? token_index, Tensor? token_count"
_OPTIONS = "bool elu, bool normalize, float eps"
_library = torch.library.Library("momentum", "DEF")
_library.define(
    f"causal(Tensor q, Tensor k, Tensor v, Tensor? s, Tensor? z, {_COEFFICIENTS}, {_OPTIONS}, bool return_state) -> "
    "(Tensor y, Tensor denominator, Tensor prefix, Tensor s_after, Tensor z_after)"
)
_library.define(
    "causal_backward(Tensor dy, Tensor? ds_after, Tensor? dz_after, Tensor q, Tensor k, Tensor v, Tensor? s, "
    f"Tensor? z, Tensor y, Tensor denominator, Tensor prefix, {_COEFFICIENTS}, {_OPTIONS}, bool learned) -> "
    "(Tensor dq, Tensor dk, Tensor dv, Tensor ds, Tensor dz, Tensor d_coefficients)"
)


def wide_dtype(q: Tensor) -> torch.dtype:
    """The dtype of states, denominators and sums."""
    return torch.float64 if q.dtype == torch.float64 else torch.float32


def _segments(n: int) -> int:
    return (n + SEGMENT - 1) // SEGMENT


def sums_segments(n: int) -> bool:
    """Whether a sequence is so long that s would lose digits without blocked summation (native/scan.h)."""
    return n > 4 * SEGMENT


def _splits_sequences(b: int, h: int) -> bool:
    """Whether sequences are split across threads.

    It changes the order of summation, so it must not depend on how many threads are in use: only on the machine.
    """
    return b * h < CORES


def _check(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor | None,
    gamma: Tensor | None,
    token_index: Tensor | None,
    token_count: Tensor | None,
) -> None:
    """The kernels get bare pointers, so everything they rely on is checked here."""
    if q.dtype not in DTYPES or not q.dtype == k.dtype == v.dtype:
        raise ValueError(f"q, k, v must have one dtype of {DTYPES}, not {q.dtype}, {k.dtype}, {v.dtype}")
    if q.ndim != 4 or v.ndim != 4 or q.shape != k.shape or q.shape[:3] != v.shape[:3] or not (q.numel() and v.numel()):
        raise ValueError(f"q, k, v do not fit: {tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)}")
    check_tokens((q.shape[0], q.shape[2]), token_index, token_count)
    check_coefficients(beta, gamma, q.shape[1])
    if not all(x is None or x.is_contiguous() for x in (beta, gamma, token_index, token_count)):
        raise ValueError("beta, gamma, token_index and token_count must be contiguous")


def _check_state(names: str, s: Tensor | None, z: Tensor | None, q: Tensor, e: int, beta: Tensor | None) -> None:
    """A state, or its gradient: s (b, h, planes, d, e) and z (b, h, d)."""
    (b, h, _, d), wide = q.shape, wide_dtype(q)
    if (s is None) != (z is None):
        raise ValueError(f"{names} come together")
    check_tensor(names, s, (b, h, 1 if beta is None else 2, d, e), wide)
    check_tensor(names, z, (b, h, d), wide)


def _check_saved(
    dy: Tensor, y: Tensor, denominator: Tensor, prefix: Tensor, q: Tensor, v: Tensor, beta: Tensor | None
) -> None:
    (b, h, n, d), e, wide, parts = q.shape, v.shape[-1], wide_dtype(q), _segments(q.shape[2])
    check_tensor("dy", dy, tuple(v.shape), v.dtype)
    check_tensor("y", y, tuple(v.shape), v.dtype)
    check_tensor("denominator", denominator, (b, h, n), wide)
    if parts > 1:
        check_tensor("prefix", prefix, (b, h, parts * ((1 if beta is None else 2) * d * e + d)), wide)
    if not denominator.is_contiguous() or not prefix.is_contiguous():
        raise ValueError("denominator and prefix must be contiguous")


def _problem(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor | None,
    gamma: Tensor | None,
    token_index: Tensor | None,
    token_count: Tensor | None,
    *,
    elu: bool,
    normalize: bool,
    eps: float,
) -> Problem:
    (b, h, n, d), e = q.shape, v.shape[-1]
    problem = Problem(b=b, h=h, n=n, d=d, e=e, segment=SEGMENT, elu=elu, normalize=normalize, eps=eps)
    problem.split_sequence, problem.sum_segments = _splits_sequences(b, h) and n > SEGMENT, sums_segments(n)
    problem.threads, problem.dtype = torch.get_num_threads(), DTYPES.index(q.dtype)
    problem.q, problem.k, problem.v = TensorView.of(q), TensorView.of(k), TensorView.of(v)
    problem.coefficient_heads = 1 if beta is None else beta.shape[0]
    problem.beta, problem.gamma = pointer(beta), pointer(gamma)
    problem.token_index, problem.token_count = pointer(token_index), pointer(token_count)
    return problem


def run(which: str, problem: ctypes.Structure, dtype: torch.dtype) -> None:
    found = native()
    if isinstance(found, Missing):
        raise RuntimeError(f"the native kernels are {found.reason}")
    if call(getattr(found.of(dtype), which), problem):
        raise MemoryError("the native kernels found no memory for their scratch")


def _causal_outputs(
    q: Tensor,
    v: Tensor,
    beta: Tensor | None,
    token_index: Tensor | None,
    return_state: bool,
    *,
    keep: bool = True,
    traced: bool = True,
) -> tuple[Tensor, ...]:
    (b, h, n, d), e, wide = q.shape, v.shape[-1], wide_dtype(q)
    planes, parts = 1 if beta is None else 2, _segments(n)
    # While tracing, n may be symbolic: shapes may depend on it only by arithmetic, and no size may be 1 for some n
    # only, or the graph is specialised.
    has_prefix = traced or (parts > 1 and (keep or _splits_sequences(b, h)))
    return (
        empty_rows(v, token_index),
        q.new_empty((b, h, n) if keep else (0,), dtype=wide),
        q.new_empty((b, h, parts * (planes * d * e + d)) if has_prefix else (0,), dtype=wide),
        q.new_empty((b, h, planes, d, e) if return_state else (0,), dtype=wide),
        q.new_empty((b, h, d) if return_state else (0,), dtype=wide),
    )


def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    s: Tensor | None,
    z: Tensor | None,
    beta: Tensor | None,
    gamma: Tensor | None,
    token_index: Tensor | None,
    token_count: Tensor | None,
    elu: bool,
    normalize: bool,
    eps: float,
    return_state: bool,
    keep: bool = True,
    traced: bool = False,
) -> tuple[Tensor, ...]:
    """`momentum::causal`.

    Args:
        keep: save what only the backward pass reads (denominator and prefix); otherwise these are empty.
        traced: give all results the shapes that a trace expects.
    """
    q, k, v = contiguous_rows(q), contiguous_rows(k), contiguous_rows(v)
    problem = _problem(q, k, v, beta, gamma, token_index, token_count, elu=elu, normalize=normalize, eps=eps)
    outputs = _causal_outputs(q, v, beta, token_index, return_state, keep=keep, traced=traced)
    y, denominator, prefix, s_after, z_after = outputs
    if traced and q.shape[2] <= SEGMENT:
        prefix.zero_()  # never read, but an operator must not return uninitialized memory
    problem.y, problem.denominator = TensorView.of(y), denominator.data_ptr() if keep else None
    problem.prefix = prefix.data_ptr() if prefix.numel() and q.shape[2] > SEGMENT else None
    if s is not None and z is not None:
        s, z = s.contiguous(), z.contiguous()
        problem.s, problem.z = pointer(s), pointer(z)
    if return_state:
        problem.s_after, problem.z_after = s_after.data_ptr(), z_after.data_ptr()
    run("forward", problem, q.dtype)
    return outputs


def _causal(*inputs: Any) -> tuple[Tensor, ...]:
    q, k, v, s, z, beta, gamma, *tokens = inputs[:9]
    check_no_tangent(*inputs[:7])
    _check(q, k, v, beta, gamma, *tokens)
    _check_state("s and z", s, z, q, v.shape[-1], beta)
    check_indices(q, *tokens)
    return forward(*inputs, traced=True)  # type: ignore[misc]  # inputs are those of the operator


def _causal_fake(q: Tensor, k: Tensor, v: Tensor, *rest: object) -> tuple[Tensor, ...]:
    _, _, beta, _, token_index, _, _, _, _, return_state = rest
    return _causal_outputs(contiguous_rows(q), contiguous_rows(v), beta, token_index, return_state)  # type: ignore[arg-type]


def _backward_outputs(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor | None, token_index: Tensor | None, has_state: bool, learned: bool
) -> tuple[Tensor, ...]:
    (b, h, _, d), e, planes, wide = q.shape, v.shape[-1], 1 if beta is None else 2, wide_dtype(q)
    return (
        *(empty_rows(x, token_index) for x in (q, k, v)),
        q.new_empty((b, h, planes, d, e) if has_state else (0,), dtype=wide),
        q.new_empty((b, h, d) if has_state else (0,), dtype=wide),
        q.new_empty((b, h, 2) if learned else (0,), dtype=torch.float64),
    )


def backward(
    dy: Tensor,
    ds_after: Tensor | None,
    dz_after: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    s: Tensor | None,
    z: Tensor | None,
    y: Tensor,
    denominator: Tensor,
    prefix: Tensor,
    beta: Tensor | None,
    gamma: Tensor | None,
    token_index: Tensor | None,
    token_count: Tensor | None,
    elu: bool,
    normalize: bool,
    eps: float,
    learned: bool,
) -> tuple[Tensor, ...]:
    """`momentum::causal_backward`; `learned`: β and γ get gradients too, (b, h, 2)."""
    q, k, v, dy, y = (contiguous_rows(x) for x in (q, k, v, dy, y))
    problem = _problem(q, k, v, beta, gamma, token_index, token_count, elu=elu, normalize=normalize, eps=eps)
    outputs = _backward_outputs(q, k, v, beta, token_index, s is not None, learned)
    dq, dk, dv, ds, dz, d_coefficients = outputs
    problem.y, problem.denominator, problem.dy = TensorView.of(y), pointer(denominator), TensorView.of(dy)
    problem.dq, problem.dk, problem.dv = TensorView.of(dq), TensorView.of(dk), TensorView.of(dv)
    problem.prefix = prefix.data_ptr() if prefix.numel() and q.shape[2] > SEGMENT else None
    if s is not None and z is not None:
        s, z = s.contiguous(), z.contiguous()
        problem.s, problem.z = pointer(s), pointer(z)
        problem.ds, problem.dz = ds.data_ptr(), dz.data_ptr()
    if ds_after is not None and dz_after is not None:
        ds_after, dz_after = ds_after.contiguous(), dz_after.contiguous()
        problem.ds_after, problem.dz_after = pointer(ds_after), pointer(dz_after)
    if learned:
        problem.d_coefficients = d_coefficients.data_ptr()
    run("backward", problem, q.dtype)
    return outputs


def _causal_backward(*inputs: Any) -> tuple[Tensor, ...]:
    dy, ds_after, dz_after, q, k, v, s, z, y, denominator, prefix, beta, gamma, *tokens = inputs[:15]
    _check(q, k, v, beta, gamma, *tokens)
    _check_state("s and z", s, z, q, v.shape[-1], beta)
    _check_state("the gradients of s and z", ds_after, dz_after, q, v.shape[-1], beta)
    _check_saved(dy, y, denominator, prefix, q, v, beta)
    if inputs[-1] and beta is None:
        raise ValueError("without beta and gamma there is nothing to learn")
    check_indices(q, *tokens)
    return backward(*inputs)


def _causal_backward_fake(
    dy: Tensor, ds_after: Tensor | None, dz_after: Tensor | None, q: Tensor, k: Tensor, v: Tensor, *rest: object
) -> tuple[Tensor, ...]:
    s, _, _, _, _, beta, _, token_index, _, _, _, _, learned = rest
    q, k, v = contiguous_rows(q), contiguous_rows(k), contiguous_rows(v)
    return _backward_outputs(q, k, v, beta, token_index, s is not None, learned)  # type: ignore[arg-type]


for _name, _real, _fake in (
    ("causal", _causal, _causal_fake),
    ("causal_backward", _causal_backward, _causal_backward_fake),
):
    _library.impl(_name, _real, "CPU")
    torch.library.register_fake(f"momentum::{_name}", _fake)
