"""The native kernels as PyTorch operators: `momentum::causal`, its backward pass, and `momentum::step`.

Autograd and the tables of weights belong to `ops.native`. q, k, v are (b, h, n, d) on the CPU, in one of DTYPES; a
state is (b, h, lanes, d, e) and (b, h, d), tables have one row, or one a head: both float32, or float64 like q.
"""

import ctypes

import torch
from torch import Tensor

from .library import Missing, Problem, Rows, Step, aligned, empty_rows, native, pointer

# One segment is what a thread does at a time where there are fewer heads than threads. It decides the order of
# summation, so it never depends on the number of threads.
SEGMENT = 256
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)  # in the order of native/problem.h

_TABLES = "Tensor pair, Tensor near, Tensor fade, Tensor carry, Tensor scale, Tensor? rows, Tensor? count"
_OPTIONS = "int lanes, bool elu, bool normalize, float eps"
_library = torch.library.Library("momentum", "DEF")
_library.define(
    f"causal(Tensor q, Tensor k, Tensor v, Tensor? s, Tensor? z, {_TABLES}, {_OPTIONS}, bool return_state) -> "
    "(Tensor y, Tensor denominator, Tensor prefix, Tensor s_after, Tensor z_after)"
)
_library.define(
    "causal_backward(Tensor dy, Tensor? ds_after, Tensor? dz_after, Tensor q, Tensor k, Tensor v, Tensor? s, "
    f"Tensor? z, Tensor y, Tensor denominator, Tensor prefix, {_TABLES}, {_OPTIONS}, bool learned) -> "
    "(Tensor dq, Tensor dk, Tensor dv, Tensor ds, Tensor dz, Tensor d_tables)"
)
_library.define(
    "step(Tensor q, Tensor k, Tensor v, Tensor? m, Tensor s, Tensor z, Tensor? beta, Tensor? gamma, "
    "bool elu, bool normalize, float eps) -> (Tensor y, Tensor m_after, Tensor s_after, Tensor z_after)"
)


def segments(n: int, segment: int) -> int:
    return (n + segment - 1) // segment


def segment_of(chunk: int) -> int:
    """A whole number of chunks."""
    return max(1, SEGMENT // chunk) * chunk


def _check(
    q: Tensor, k: Tensor, v: Tensor, tables: tuple[Tensor, ...], rows: Tensor | None, count: Tensor | None
) -> None:
    """The kernels see addresses only, so what they rely on is checked here."""
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    if not q.dtype == k.dtype == v.dtype or any(table.dtype != wide for table in tables):
        raise ValueError(f"q, k, v must have one dtype and tables {wide}, not {q.dtype}, {k.dtype}, {v.dtype}")
    if q.shape != k.shape or q.shape[:3] != v.shape[:3]:
        raise ValueError(f"q, k, v do not fit: {tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)}")
    if not all(x is None or x.is_contiguous() for x in (*tables, rows, count)):
        raise ValueError("tables, rows and count must be contiguous")


def _problem(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tables: tuple[Tensor, ...],
    rows: Tensor | None,
    count: Tensor | None,
    *,
    lanes: int,
    elu: bool,
    normalize: bool,
    eps: float,
) -> Problem:
    (b, h, n, d), e = q.shape, v.shape[-1]
    _check(q, k, v, tables, rows, count)
    pair, near, fade, carry, scale = tables
    chunk = pair.shape[-1]
    problem = Problem(b=b, h=h, n=n, d=d, e=e, chunk=chunk, window=near.shape[-1], segment=segment_of(chunk))
    problem.lanes, problem.table_heads = lanes, pair.shape[0]
    problem.elu, problem.normalize, problem.eps = elu, normalize, eps
    problem.threads, problem.dtype = torch.get_num_threads(), DTYPES.index(q.dtype)
    problem.q, problem.k, problem.v = Rows.of(q), Rows.of(k), Rows.of(v)
    problem.pair, problem.near, problem.fade = pair.data_ptr(), near.data_ptr(), fade.data_ptr()
    problem.carry, problem.scale = carry.data_ptr(), scale.data_ptr()
    problem.rows, problem.count = pointer(rows), pointer(count)
    return problem


def run(which: str, problem: Problem | Step, dtype: torch.dtype) -> None:
    found = native()
    if isinstance(found, Missing):
        raise RuntimeError(f"the native kernels are {found.reason}")
    if getattr(found.of(dtype), which)(ctypes.byref(problem)):
        raise MemoryError("the native kernels found no memory for their scratch")


def _causal_outputs(
    q: Tensor, v: Tensor, pair: Tensor, rows: Tensor | None, lanes: int, return_state: bool, keep: bool = True
) -> tuple[Tensor, ...]:
    (b, h, n, d), e = q.shape, v.shape[-1]
    parts = segments(n, segment_of(pair.shape[-1]))
    connected = keep or b * h < torch.get_num_threads()  # several threads a sequence meet in the states between parts
    prefix = pair.new_empty((b, h, parts, lanes * d * e + d) if parts > 1 and connected else (0,))
    s_after = pair.new_empty((b, h, lanes, d, e) if return_state else (0,))
    z_after = pair.new_empty((b, h, d) if return_state else (0,))
    return empty_rows(v, rows), pair.new_empty((b, h, n) if keep else (0,)), prefix, s_after, z_after


def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    s: Tensor | None,
    z: Tensor | None,
    pair: Tensor,
    near: Tensor,
    fade: Tensor,
    carry: Tensor,
    scale: Tensor,
    rows: Tensor | None,
    count: Tensor | None,
    lanes: int,
    elu: bool,
    normalize: bool,
    eps: float,
    return_state: bool,
    keep: bool = True,
) -> tuple[Tensor, ...]:
    """`momentum::causal`; without `keep`, what only the backward pass reads is neither written nor there."""
    q, k, v = aligned(q), aligned(k), aligned(v)
    tables = (pair, near, fade, carry, scale)
    problem = _problem(q, k, v, tables, rows, count, lanes=lanes, elu=elu, normalize=normalize, eps=eps)
    outputs = _causal_outputs(q, v, pair, rows, lanes, return_state, keep)
    y, denominator, prefix, s_after, z_after = outputs
    problem.y, problem.denominator = Rows.of(y), denominator.data_ptr() if keep else None
    problem.prefix = prefix.data_ptr() if prefix.numel() else None
    if s is not None and z is not None:
        s, z = s.contiguous(), z.contiguous()
        problem.s, problem.z = s.data_ptr(), z.data_ptr()
    if return_state:
        problem.s_after, problem.z_after = s_after.data_ptr(), z_after.data_ptr()
    run("forward", problem, q.dtype)
    return outputs


def _causal_fake(q: Tensor, k: Tensor, v: Tensor, *rest: object) -> tuple[Tensor, ...]:
    _, _, pair, _, _, _, _, rows, _, lanes, _, _, _, return_state = rest
    return _causal_outputs(aligned(q), aligned(v), pair, rows, lanes, return_state)  # type: ignore[arg-type]


def _backward_outputs(
    q: Tensor, k: Tensor, v: Tensor, pair: Tensor, rows: Tensor | None, lanes: int, has_state: bool, learned: bool
) -> tuple[Tensor, ...]:
    (b, h, _, d), e = q.shape, v.shape[-1]
    d_tables = pair.new_zeros((b, h, 3, pair.shape[-1] + 1) if learned else (0,), dtype=torch.float64)
    ds = pair.new_empty((b, h, lanes, d, e) if has_state else (0,))
    return *(empty_rows(x, rows) for x in (q, k, v)), ds, pair.new_empty((b, h, d) if has_state else (0,)), d_tables


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
    pair: Tensor,
    near: Tensor,
    fade: Tensor,
    carry: Tensor,
    scale: Tensor,
    rows: Tensor | None,
    count: Tensor | None,
    lanes: int,
    elu: bool,
    normalize: bool,
    eps: float,
    learned: bool,
) -> tuple[Tensor, ...]:
    q, k, v, dy, y = aligned(q), aligned(k), aligned(v), aligned(dy), aligned(y)
    tables = (pair, near, fade, carry, scale)
    problem = _problem(q, k, v, tables, rows, count, lanes=lanes, elu=elu, normalize=normalize, eps=eps)
    outputs = _backward_outputs(q, k, v, pair, rows, lanes, s is not None, learned)
    dq, dk, dv, ds, dz, d_tables = outputs
    problem.y, problem.denominator, problem.dy = Rows.of(y), denominator.data_ptr(), Rows.of(dy)
    problem.dq, problem.dk, problem.dv = Rows.of(dq), Rows.of(dk), Rows.of(dv)
    problem.prefix = prefix.data_ptr() if prefix.numel() else None
    if s is not None and z is not None:
        s, z = s.contiguous(), z.contiguous()
        problem.s, problem.z = s.data_ptr(), z.data_ptr()
        problem.ds, problem.dz = ds.data_ptr(), dz.data_ptr()
    if ds_after is not None and dz_after is not None:
        ds_after, dz_after = ds_after.contiguous(), dz_after.contiguous()
        problem.ds_after, problem.dz_after = ds_after.data_ptr(), dz_after.data_ptr()
    if learned:
        problem.d_tables = d_tables.data_ptr()
    run("backward", problem, q.dtype)
    return outputs


def _causal_backward_fake(
    dy: Tensor, ds_after: Tensor | None, dz_after: Tensor | None, q: Tensor, k: Tensor, v: Tensor, *rest: object
) -> tuple[Tensor, ...]:
    s, _, _, _, _, pair, _, _, _, _, rows, _, lanes, _, _, _, learned = rest
    q, k, v = aligned(q), aligned(k), aligned(v)
    return _backward_outputs(q, k, v, pair, rows, lanes, s is not None, learned)  # type: ignore[arg-type]


def step_problem(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    y: Tensor,
    *,
    before: tuple[Tensor | None, Tensor, Tensor],
    after: tuple[Tensor | None, Tensor, Tensor],
    beta: Tensor | None,
    gamma: Tensor | None,
    elu: bool,
    normalize: bool,
    eps: float,
) -> Step:
    """One token q, k (b, h, d), v, y (b, h, e) and states (m, s, z), contiguous; β and γ float64."""
    (b, h, d), e, s = q.shape, v.shape[-1], before[1]
    for name, state in zip(("m", "s", "z") * 2, (*before, *after), strict=True):
        shape = (b, h, d) if name == "z" else (b, h, d, e)
        if state is not None and (state.shape != shape or state.dtype != q.dtype or not state.is_contiguous()):
            raise ValueError(f"{name} must be contiguous {q.dtype} {shape}, not {state.dtype} {tuple(state.shape)}")
    if k.shape != q.shape or v.shape[:2] != q.shape[:2] or not q.dtype == k.dtype == v.dtype == y.dtype:
        raise ValueError(f"q, k, v do not fit: {tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)}")
    step = Step(b=b, h=h, d=d, e=e, lanes=1 if before[0] is None else 2, elu=elu, normalize=normalize, eps=eps)
    step.table_heads = 1 if beta is None else beta.shape[0]
    # a thread more is worth its start only where it has some hundred thousand numbers to work on
    step.threads = min(torch.get_num_threads(), 1 + s.numel() // 2**17)
    step.q, step.k, step.v, step.y = Rows.of(q), Rows.of(k), Rows.of(v), Rows.of(y)
    step.m, step.s, step.z = map(pointer, before)
    step.m_after, step.s_after, step.z_after = map(pointer, after)
    step.beta, step.gamma = pointer(beta), pointer(gamma)
    return step


def _step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    m: Tensor | None,
    s: Tensor,
    z: Tensor,
    beta: Tensor | None,
    gamma: Tensor | None,
    elu: bool,
    normalize: bool,
    eps: float,
) -> tuple[Tensor, ...]:
    q, k, v, s, z = aligned(q), aligned(k), aligned(v), s.contiguous(), z.contiguous()
    m = None if m is None else m.contiguous()
    beta, gamma = (None if x is None else x.contiguous() for x in (beta, gamma))
    y, m_after, s_after, z_after = _step_fake(q, k, v, m, s, z)
    after = (None if m is None else m_after, s_after, z_after)
    before = (m, s, z)
    run(
        "step",
        step_problem(
            q, k, v, y, before=before, after=after, beta=beta, gamma=gamma, elu=elu, normalize=normalize, eps=eps
        ),
        q.dtype,
    )
    return y, m_after, s_after, z_after


def _step_fake(
    q: Tensor, k: Tensor, v: Tensor, m: Tensor | None, s: Tensor, z: Tensor, *rest: object
) -> tuple[Tensor, ...]:
    return (
        v.new_empty(v.shape),
        s.new_empty(s.shape if m is not None else (0,)),
        s.new_empty(s.shape),
        z.new_empty(z.shape),
    )


for _name, _real, _fake in (
    ("causal", forward, _causal_fake),
    ("causal_backward", backward, _causal_backward_fake),
    ("step", _step, _step_fake),
):
    _library.impl(_name, _real, "CPU")
    torch.library.register_fake(f"momentum::{_name}", _fake)
