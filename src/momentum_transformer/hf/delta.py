"""The gated delta rule, with one decay a head (Gated DeltaNet) or one a channel (KDA), as Transformers calls it."""

from typing import Any

import torch
from torch import Tensor

from ..attention import recurrent_attention
from ..backend.surroundings import unit_rows
from ..ops.shapes import Float
from ..ops.state import RecurrentState
from .packing import document_starts

EPS = 1e-6  # of the length of a query or key


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
    """`delta_rule` for one token without gradients, which `initial_state` takes in, in place: what decoding asks for.

    Whatever else it is asked goes to `delta_rule`. A state of a megabyte is passed over three times and never copied.
    """
    tensors = (query, key, value, g, beta, initial_state)
    graph = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)
    fits = initial_state is not None and initial_state.dtype == torch.float32 and initial_state.is_contiguous()
    if initial_state is None or not fits or graph or query.shape[1] != 1 or not use_qk_l2norm_in_kernel:
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
    b, h, d, e = initial_state.shape
    both = _unit(torch.stack([key[:, 0], query[:, 0]], 2).float())  # (b, h, 2, d): what is erased, what is read
    decay = g[:, 0].float().exp().view(b, h, 1, -1)
    s = initial_state.view(b * h, d, e)
    predicted, read = torch.bmm((both * decay).view(-1, 2, d), s).view(b, h, 2, e).unbind(2)
    u = (value[:, 0].float() - predicted) * beta[:, 0].float()[..., None]
    s.mul_(decay.view(b * h, -1, 1)).baddbmm_(both[:, :, 0].reshape(-1, d, 1), u.view(-1, 1, e))
    y = torch.addcmul(read, (both[:, :, 0] * both[:, :, 1]).sum(-1, keepdim=True), u) * d**-0.5
    return y[:, None].to(value.dtype), initial_state if output_final_state else None


def _unit(x: Tensor, scale: float = 1.0) -> Tensor:
    """Vectors of length `scale`, almost: EPS keeps a vector of zeros what it is."""
    squares = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square()
    return x * (scale * torch.rsqrt(squares + EPS))
