"""One token of causal attention by the native kernels, as an operator of PyTorch: `momentum::step`."""

import torch
from torch import Tensor

from .causal_operator import check_coefficients, check_no_tangent, run
from .library import Step, TensorView, contiguous_rows, pointer

_library = torch.library.Library("momentum", "FRAGMENT")
_library.define(
    "step(Tensor q, Tensor k, Tensor v, Tensor? m, Tensor s, Tensor z, Tensor? beta, Tensor? gamma, "
    "bool elu, bool normalize, float eps) -> (Tensor y, Tensor m_after, Tensor s_after, Tensor z_after)"
)


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
    check_coefficients(beta, gamma, h)
    step = Step(b=b, h=h, d=d, e=e, planes=1 if before[0] is None else 2, elu=elu, normalize=normalize, eps=eps)
    step.coefficient_heads = 1 if beta is None else beta.shape[0]
    # starting another thread pays off only if it gets some hundred thousand elements of the state
    step.threads = min(torch.get_num_threads(), 1 + s.numel() // 2**17)
    step.q, step.k, step.v, step.y = TensorView.of(q), TensorView.of(k), TensorView.of(v), TensorView.of(y)
    step.m, step.s, step.z = map(pointer, before)
    step.m_after, step.s_after, step.z_after = map(pointer, after)
    step.beta, step.gamma = pointer(beta), pointer(gamma)
    return step


def step(
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
    check_no_tangent(q, k, v, m, s, z, beta, gamma)
    q, k, v, s, z = contiguous_rows(q), contiguous_rows(k), contiguous_rows(v), s.contiguous(), z.contiguous()
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


_library.impl("step", step, "CPU")
torch.library.register_fake("momentum::step", _step_fake)
