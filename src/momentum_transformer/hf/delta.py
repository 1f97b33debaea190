"""The gated delta rule, with one decay a head (Gated DeltaNet) or one a channel (KDA), as Transformers calls it.

Both its functions, in chunks and token by token, are this one: the kernel knows no difference.
"""

import torch
from torch import Tensor

from ..attention import recurrent_attention
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
    q, k, v = (x.to(wide) for x in (query, key, value))
    scale = q.shape[-1] ** -0.5
    q = _unit(q, scale) if use_qk_l2norm_in_kernel else q * scale
    k = _unit(k) if use_qk_l2norm_in_kernel else k
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    boundaries = cu_seq_lens_q if cu_seqlens is None else cu_seqlens
    decay = g.to(wide).transpose(1, 2).exp()
    channels = decay.ndim == 4
    y = recurrent_attention(
        q,
        k,
        v,
        alpha=decay,
        eta=beta.to(wide).transpose(1, 2),
        delta=1.0 if channels else decay,
        erase=decay * k if channels else None,
        reset=document_starts(*query.shape[:2], cu_seqlens=boundaries, seq_idx=seq_idx),
        state=None if initial_state is None else RecurrentState(initial_state.to(wide), None, None),
        return_state=output_final_state,
    )
    y, after = y if output_final_state else (y, None)
    return y.transpose(1, 2).to(dtype), None if after is None else after.s


def _unit(x: Tensor, scale: float = 1.0) -> Tensor:
    """Vectors of length `scale`, almost: EPS keeps a vector of zeros what it is."""
    squares = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square()
    return x * (scale * torch.rsqrt(squares + EPS))
