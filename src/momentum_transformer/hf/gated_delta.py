"""The gated delta rule, with one decay a head (Gated DeltaNet) or one a channel (KDA), as Transformers calls it."""

from typing import Any

import torch
from torch import Tensor

from ..attention import recurrent_attention
from ..backend.cpu.causal_operator import run
from ..backend.cpu.step_operator import FEATURES, step_problem
from ..backend.surroundings import unit_rows
from ..ops.coefficients import Coefficients
from ..ops.feature_maps import L2_EPS, l2_normalized
from ..ops.shapes import Float
from ..ops.state import RecurrentState
from ..ops.tracing import eager, transformed
from .packing import document_starts

EPS = L2_EPS  # of the L2 norm of queries and keys: the same in Transformers and in our kernels
ONE = torch.ones(1, dtype=torch.float64)  # what is predicted is erased


def delta_rule(
    query: Float[Tensor, "b n h d"],
    key: Float[Tensor, "b n h d"],
    value: Float[Tensor, "b n h e"],
    *,
    g: Tensor,
    beta: Float[Tensor, "b n h"],
    initial_state: Float[Tensor, "b h d e"] | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seq_lens_q: Tensor | None = None,
    seq_idx: Tensor | None = None,
    **_others: object,
) -> tuple[Float[Tensor, "b n h e"], Float[Tensor, "b h d e"] | None]:
    """y, and the state after the last token where it is asked for; computed in float32 or more, as Transformers does.

    Args:
        g: log of the decay, (b, n, h) or (b, n, h, d).
        beta: write strength.
        use_qk_l2norm_in_kernel: queries and keys are brought to length one.
    """
    dtype, wide = value.dtype, torch.promote_types(value.dtype, torch.float32)
    q, k, v, beta, g = (x.to(wide).transpose(1, 2) for x in (query, key, value, beta, g))
    scale = q.shape[-1] ** -0.5
    q = unit_rows(q, scale=scale, eps=EPS) if use_qk_l2norm_in_kernel else q * scale
    k = unit_rows(k, eps=EPS) if use_qk_l2norm_in_kernel else k
    decay = g.exp()
    channels = decay.ndim == 4
    y = recurrent_attention(
        q,
        k,
        v,
        alpha=decay,
        eta=beta,
        delta=1.0 if channels else decay,
        erase=decay * k if channels else None,
        reset=document_starts(
            *query.shape[:2], cu_seqlens=cu_seq_lens_q if cu_seqlens is None else cu_seqlens, seq_idx=seq_idx
        ),
        state=None if initial_state is None else RecurrentState(initial_state.to(wide), None, None),
        return_state=output_final_state,
    )
    y, after = y if output_final_state else (y, None)
    return y.transpose(1, 2).to(dtype), None if after is None else after.s


def delta_step(
    query: Float[Tensor, "b n h d"],
    key: Float[Tensor, "b n h d"],
    value: Float[Tensor, "b n h e"],
    *,
    g: Tensor,
    beta: Float[Tensor, "b n h"],
    initial_state: Float[Tensor, "b h d e"] | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    **others: Any,
) -> tuple[Float[Tensor, "b n h e"], Float[Tensor, "b h d e"] | None]:
    """`delta_rule` for decoding: one token without gradients, `initial_state` updated in place, in one pass.

    All other calls go to `delta_rule`.
    """
    tensors = (query, key, value, g, beta, initial_state)
    graph = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)
    fits = initial_state is not None and initial_state.dtype == torch.float32 and initial_state.is_contiguous()
    one = query.shape[1] == 1 and use_qk_l2norm_in_kernel and eager(*tensors) and not transformed()
    if initial_state is None or not fits or not one or graph:
        return delta_rule(
            query,
            key,
            value,
            g=g,
            beta=beta,
            initial_state=initial_state,
            output_final_state=output_final_state,
            use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel,
            **others,
        )
    q, k, v, eta, decay = (x.float().transpose(1, 2).contiguous() for x in (query, key, value, beta, g.float().exp()))
    channels = decay.ndim == 4
    # every tensor of a problem has a name here: the kernel gets pointers
    erase = decay * unit_rows(k, eps=EPS) if channels else None
    y, state = torch.empty_like(v), (None, initial_state, None)
    problem = step_problem(
        *(q, k, v, y),
        erase=erase,
        before=state,
        after=state,
        c=Coefficients(alpha=decay, beta=None, gamma=None, eta=eta, delta=ONE if channels else decay, lookahead=None),
        features=FEATURES.index(l2_normalized),
        normalize=False,
        eps=EPS,
        scale=q.shape[-1] ** -0.5,
    )
    run("step", problem, torch.float32)
    return y.transpose(1, 2).to(value.dtype), initial_state if output_final_state else None
