"""One token of any member of the family by the native kernels, as an operator of PyTorch: `momentum::step`.

q, k and `erase` are (b, h, 1, d), v is (b, h, 1, e); the state is m, s (b, h, d, e) and z (b, h, d). All are float32,
or all float64. A coefficient is None where it is neutral, (1,) or (h,) in float64, or (b, h, 1) in the dtype of q;
alpha also (b, h, 1, d).
"""

from typing import Any

import torch
from torch import Tensor

from ...ops.coefficients import Coefficients
from ...ops.feature_maps import elu_plus_one, l2_normalized
from .causal_operator import run
from .library import Coefficient, Step, contiguous_rows, pointer
from .operator_checks import check_no_tangent

FEATURES = (None, elu_plus_one, l2_normalized)  # the feature maps that the kernel knows, in the order of problem.h
ELEMENTS_PER_THREAD = 2**17  # of the state: fewer do not pay for starting a thread

State = tuple[Tensor | None, Tensor, Tensor | None]  # m, s, z

_library = torch.library.Library("momentum", "FRAGMENT")
_library.define(
    "step(Tensor q, Tensor k, Tensor v, Tensor? erase, Tensor? m, Tensor s, Tensor? z, Tensor? alpha, Tensor? beta, "
    "Tensor? gamma, Tensor? eta, Tensor? delta, Tensor? lookahead, int features, bool normalize, float eps) -> "
    "(Tensor y, Tensor m_after, Tensor s_after, Tensor z_after)"
)


def _check(q: Tensor, k: Tensor, v: Tensor, y: Tensor, erase: Tensor | None) -> None:
    """The kernel gets bare pointers, so everything it relies on is checked: here, and below."""
    if q.ndim != 4 or q.shape[2] != 1 or q.dtype not in (torch.float32, torch.float64) or not q.numel():
        raise ValueError(f"q must be float32 or float64 (b, h, 1, d), not {q.dtype} {tuple(q.shape)}")
    shape, dtype = q.shape, q.dtype
    if k.shape != shape or v.ndim != 4 or v.shape[:3] != shape[:3] or y.shape != v.shape or not v.numel():
        raise ValueError(f"q, k, v do not fit: {tuple(shape)}, {tuple(k.shape)}, {tuple(v.shape)}")
    if erase is not None and erase.shape != shape:
        raise ValueError(f"erase must be {tuple(shape)} like q, not {tuple(erase.shape)}")
    for name, x in (("q", q), ("k", k), ("v", v), ("y", y), ("erase", erase)):
        if x is None:
            continue
        if x.dtype != dtype or x.device.type != "cpu":
            raise ValueError(f"{name} must be {dtype} like q, on the CPU, not {x.dtype} on {x.device}")
        if x.stride(3) != 1 and x.shape[3] != 1:
            raise ValueError(f"{name} must have contiguous rows, not elements {x.stride(3)} apart")


def _check_state(state: State, q: Tensor, e: int) -> None:
    b, h, _, d = q.shape
    for name, x in zip("msz", state, strict=True):
        shape = (b, h, d) if name == "z" else (b, h, d, e)
        if x is not None and (x.shape != shape or x.dtype != q.dtype or not x.is_contiguous()):
            raise ValueError(f"{name} must be contiguous {q.dtype} {shape}, not {x.dtype} {tuple(x.shape)}")


def _coefficients(c: Coefficients, q: Tensor) -> tuple[list[Any], int, bool]:
    """The pointers of each, checked; how many numbers those for all tokens have; whether alpha is one a channel."""
    (b, h, _, d), dtype = q.shape, q.dtype
    pointers: list[Any] = []
    heads, channels = 0, False
    for name, x in zip(c._fields, c, strict=True):
        if x is None:
            pointers.append((None, None))
        elif x.ndim == 1:
            heads = heads or x.shape[0]
            if x.dtype != torch.float64 or x.shape[0] != heads or heads not in (1, h) or not x.is_contiguous():
                raise ValueError(f"{name} must be float64, one or one a head like the others, not {tuple(x.shape)}")
            pointers.append((pointer(x), None))
        else:
            wide = name == "alpha" and x.ndim == 4
            if x.shape != ((b, h, 1, d) if wide else (b, h, 1)) or x.dtype != dtype or not x.is_contiguous():
                raise ValueError(f"{name} does not fit q {tuple(q.shape)}: {x.dtype} {tuple(x.shape)}")
            pointers.append((None, pointer(x)))
            channels = channels or wide
    return pointers, heads or 1, channels


def _view(x: Tensor | None) -> tuple[int | None, int, int, int]:
    """The fields of a TensorView; ctypes takes tuples for structures in structures, and faster."""
    if x is None:
        return (None, 0, 0, 0)
    b, h, n, _ = x.stride()
    return (pointer(x), b, h, n)


def step_problem(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    y: Tensor,
    *,
    erase: Tensor | None,
    before: State,
    after: State,
    c: Coefficients,
    features: int,
    normalize: bool,
    eps: float,
    scale: float = 1.0,
) -> Step:
    """Checked; every tensor has to outlive it. `after` may be `before`: an update in place."""
    _check(q, k, v, y, erase)
    (b, h, _, d), e = q.shape, v.shape[3]
    _check_state(before, q, e)
    if after is not before:
        _check_state(after, q, e)
    (m, s, z), (m_after, s_after, z_after) = before, after
    if (m is None) != (c.beta is None) or (m is None) != (m_after is None) or (z is None) != (z_after is None):
        raise ValueError("m and beta come together, and a state has the same parts before and after the token")
    if (normalize and z is None) or not 0 <= features < len(FEATURES):
        raise ValueError(f"normalize needs z, and features must be in 0 … {len(FEATURES) - 1}, not {features}")
    coefficients, heads, channels = _coefficients(c, q)
    threads = min(torch.get_num_threads(), 1 + s.numel() // ELEMENTS_PER_THREAD)
    return Step(
        *(b, h, d, e, heads, channels, features, normalize, threads, False, eps, scale),
        *(_view(q), _view(k), _view(v), _view(y), _view(erase)),
        (Coefficient * len(coefficients))(*coefficients),
        *(pointer(m), pointer(s), pointer(z)),
        *(pointer(m_after), s_after.data_ptr(), pointer(z_after)),
    )


def one_token(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    erase: Tensor | None,
    state: State,
    c: Coefficients,
    features: int,
    normalize: bool,
    eps: float,
) -> tuple[Tensor, State]:
    """y (b, h, 1, e) and the state after the token, in new tensors."""
    q, k, v = contiguous_rows(q), contiguous_rows(k), contiguous_rows(v)
    erase = None if erase is None else contiguous_rows(erase)
    m, s, z = state
    before = (None if m is None else m.contiguous(), s.contiguous(), None if z is None else z.contiguous())
    after = _new_state(*before)
    y = torch.empty_like(v, memory_format=torch.contiguous_format)
    c = Coefficients._make([x if x is None else x.contiguous() for x in c])
    problem = step_problem(
        *(q, k, v, y),
        erase=erase,
        before=before,
        after=after,
        c=c,
        features=features,
        normalize=normalize,
        eps=eps,
    )
    run("step", problem, q.dtype)
    return y, after


def _new_state(m: Tensor | None, s: Tensor, z: Tensor | None) -> State:
    return None if m is None else torch.empty_like(m), torch.empty_like(s), None if z is None else torch.empty_like(z)


def _step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    erase: Tensor | None,
    m: Tensor | None,
    s: Tensor,
    z: Tensor | None,
    *rest: Any,
) -> tuple[Tensor, ...]:
    *coefficients, features, normalize, eps = rest
    check_no_tangent(q, k, v, erase, m, s, z, *coefficients)
    c = Coefficients(*coefficients)
    y, after = one_token(q, k, v, erase, (m, s, z), c, features, normalize, eps)
    return y, *(s.new_empty(0) if x is None else x for x in after)


def _step_fake(
    q: Tensor, k: Tensor, v: Tensor, erase: Tensor | None, m: Tensor | None, s: Tensor, z: Tensor | None, *rest: object
) -> tuple[Tensor, ...]:
    return v.new_empty(v.shape), *(s.new_empty((0,) if x is None else x.shape) for x in (m, s, z))


_library.impl("step", _step, "CPU")
torch.library.register_fake("momentum::step", _step_fake)
