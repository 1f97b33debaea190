"""Every member of the family by the native kernels.

q, k, v and `erase` are (b, h, n, d) on the CPU, in one of DTYPES. A coefficient is None where it is neutral, (1,) or
(h,) in float64, or (b, h, n) in the dtype of the computation, float32 or float64 like q; alpha also (b, h, n, d). A
state is (b, h, planes, d, e) and (b, h, d).
"""

import torch
from torch import Tensor

from ...ops.coefficients import Coefficients
from .causal_operator import DTYPES, SEGMENT, run
from .library import Coefficient, FamilyProblem, TensorView, contiguous_rows, empty_rows, pointer


def _check(
    tensors: tuple[Tensor, ...],
    c: Coefficients,
    state: tuple[Tensor | None, Tensor | None],
    rows: tuple[Tensor | None, ...],
    wide: torch.dtype,
) -> None:
    """The kernels get bare pointers, so everything they rely on is checked here."""
    q, k, v, *erase = tensors
    (b, h, n, d), e = q.shape, v.shape[-1]
    if any(x.dtype != q.dtype for x in tensors):
        raise ValueError(f"q, k, v and erase must have one dtype, not {', '.join(str(x.dtype) for x in tensors)}")
    if any(x.shape != q.shape for x in (k, *erase)) or v.shape[:3] != q.shape[:3]:
        raise ValueError(f"q, k, v, erase do not fit: {', '.join(str(tuple(x.shape)) for x in tensors)}")
    heads = {x.shape[0] for x in c if x is not None and x.ndim == 1}
    if len(heads) > 1 or not heads <= {1, h}:
        raise ValueError(f"coefficients for all tokens must be one or one a head, not {sorted(heads)}")
    for name, x in zip(c._fields, c, strict=True):
        if x is None:
            continue
        shapes: tuple[tuple[int, ...], ...] = ((b, h, n), (b, h, n, d)) if name == "alpha" else ((b, h, n),)
        if x.dtype != (torch.float64 if x.ndim == 1 else wide) or (x.ndim != 1 and x.shape not in shapes):
            raise ValueError(f"{name} does not fit q {tuple(q.shape)}: {x.dtype} {tuple(x.shape)}")
    shapes = ((b, h, 1 if c.beta is None else 2, d, e), (b, h, d))
    for part, shape in zip(state, shapes, strict=True):
        if part is not None and (part.shape != shape or part.dtype != wide):
            raise ValueError(f"the state must be {wide} {shape}, not {part.dtype} {tuple(part.shape)}")
    reset, token_index, token_count = rows
    if (token_index is None) != (token_count is None) or (state[0] is None) != (state[1] is None):
        raise ValueError("token_index and token_count come together, and so do s and z")
    kinds = ((b, n), torch.bool), ((b, n), torch.int32), ((b,), torch.int32)
    for x, (shape, dtype) in zip((reset, token_index, token_count), kinds, strict=True):
        if x is not None and (x.shape != shape or x.dtype != dtype):
            raise ValueError(f"reset, token_index or token_count must be {dtype} {shape}, not {x.dtype} {x.shape}")


def _problem(
    tensors: tuple[Tensor, ...], c: Coefficients, rows: tuple[Tensor | None, ...], *, elu: bool, normalize: bool
) -> FamilyProblem:
    """Of tensors with contiguous rows, and coefficients and `rows` that are contiguous."""
    q, k, v, *erase = tensors
    b, h, n, d = q.shape
    problem = FamilyProblem(b=b, h=h, n=n, d=d, e=v.shape[-1], segment=SEGMENT, elu=elu, normalize=normalize)
    problem.threads, problem.dtype = torch.get_num_threads(), DTYPES.index(q.dtype)
    problem.q, problem.k, problem.v = TensorView.of(q), TensorView.of(k), TensorView.of(v)
    if erase:
        problem.erase = TensorView.of(erase[0])
    problem.coefficient_heads = max([1, *(x.shape[0] for x in c if x is not None and x.ndim == 1)])
    problem.channels = c.alpha is not None and c.alpha.ndim == 4
    for i, x in enumerate(c):
        if x is not None:
            problem.coefficients[i] = Coefficient(**{"heads" if x.ndim == 1 else "tokens": x.data_ptr()})
    problem.reset, problem.token_index, problem.token_count = map(pointer, rows)
    return problem


def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    erase: Tensor | None,
    c: Coefficients,
    s: Tensor | None,
    z: Tensor | None,
    rows: tuple[Tensor | None, Tensor | None, Tensor | None],
    *,
    elu: bool,
    normalize: bool,
    eps: float,
    return_state: bool,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """y, and the planes and z of the state after the last token; `rows` are reset, token_index and token_count."""
    tensors = tuple(contiguous_rows(x) for x in (q, k, v, erase) if x is not None)
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    c = Coefficients(*(None if x is None else x.contiguous() for x in c))
    s, z, *rest = (None if x is None else x.contiguous() for x in (s, z, *rows))
    _check(tensors, c, (s, z), tuple(rest), wide)
    problem = _problem(tensors, c, tuple(rest), elu=elu, normalize=normalize)
    (b, h, _, d), e = q.shape, v.shape[-1]
    y = empty_rows(tensors[2], rest[1])
    problem.eps, problem.y, problem.s, problem.z = eps, TensorView.of(y), pointer(s), pointer(z)
    s_after = z_after = None
    if return_state:
        s_after = q.new_empty((b, h, 1 if c.beta is None else 2, d, e), dtype=wide)
        z_after = q.new_empty((b, h, d), dtype=wide)
        problem.s_after, problem.z_after = pointer(s_after), pointer(z_after)
    run("family_forward", problem, q.dtype)
    return y, s_after, z_after
