"""Mamba-2's recurrence as Transformers calls it: many tokens (`chunk_scan`), or one (`selective_state_update`)."""

import torch
import torch.nn.functional as F  # noqa: N812 (the field's name for it)
from torch import Tensor

from ..attention import recurrent_attention
from ..backend.cpu.cached_step_operator import serves, state_step
from ..ops.shapes import Float
from ..ops.state import RecurrentState
from .packing import document_starts


def chunk_scan(
    hidden_states: Float[Tensor, "b n h p"],
    dt: Float[Tensor, "b n h"],
    A: Float[Tensor, "h"],  # noqa: N803 (Transformers' names)
    B: Float[Tensor, "b n g s"],  # noqa: N803
    C: Float[Tensor, "b n g s"],  # noqa: N803
    *,
    D: Float[Tensor, "h"] | None = None,  # noqa: N803
    dt_bias: Float[Tensor, "h"] | None = None,
    initial_states: Float[Tensor, "b h p s"] | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
    return_final_states: bool = False,
    cu_seq_lens_q: Tensor | None = None,
    seq_idx: Tensor | None = None,
    **_others: object,
) -> Tensor | tuple[Tensor, Tensor]:
    """y (b, n, h, p), or the pair of it and the last state (b, h, p, s); in float32 or more, as Transformers does.

    A head forgets by exp(A dt) and writes dt x under the key B; C reads. B and C are shared by the heads of a group.
    """
    wide = torch.promote_types(hidden_states.dtype, torch.float32)
    x, k, q, A = (a.to(wide) for a in (hidden_states, B, C, A))
    dt = _step(dt.to(wide), dt_bias, softplus=dt_softplus).clamp(*dt_limit)
    state = None
    if initial_states is not None:
        kept = initial_states.to(wide).mT
        # the graph keeps it, and a cache changes its own in place
        state = RecurrentState(kept.clone() if torch.is_grad_enabled() else kept, None, None)
    y = recurrent_attention(
        _for_all_heads(q, x),
        _for_all_heads(k, x),
        x.transpose(1, 2),
        alpha=(dt * A).exp().transpose(1, 2),
        eta=dt.transpose(1, 2),
        reset=document_starts(*x.shape[:2], cu_seqlens=cu_seq_lens_q, seq_idx=seq_idx),
        state=state,
        return_state=return_final_states,
    )
    y, after = y if return_final_states else (y, None)
    y = y.transpose(1, 2)
    if D is not None:  # y is ours alone: without a graph it may change in place
        skip = D.to(wide)[:, None]
        y = torch.addcmul(y, x, skip) if torch.is_grad_enabled() else y.addcmul_(x, skip)
    y = y.contiguous()
    return y if after is None else (y, after.s.mT.contiguous())


def selective_state_update(
    state: Float[Tensor, "b h p s"],
    hidden_states: Float[Tensor, "b h p"],
    dt: Float[Tensor, "b h p"],
    A: Float[Tensor, "h p s"],  # noqa: N803
    B: Float[Tensor, "b g s"],  # noqa: N803
    C: Float[Tensor, "b g s"],  # noqa: N803
    D: Float[Tensor, "h p"] | None = None,  # noqa: N803
    *,
    dt_bias: Float[Tensor, "h p"] | None = None,
    dt_softplus: bool = False,
    z: Float[Tensor, "b h p"] | None = None,
    **_others: object,
) -> Float[Tensor, "b h p"]:
    """One token's output; `state` takes the token in, in place.

    dt, A, D and dt_bias are the same for all channels of a head, though they come spread.
    """
    if serves(state, hidden_states, dt, A, B, C, D, dt_bias):
        of_heads = None if dt_bias is None else dt_bias[:, 0]
        skip = None if D is None else D[:, 0]
        y = state_step(
            *(state, hidden_states, B, C, dt[..., 0], A[:, 0, 0]), dt_bias=of_heads, skip=skip, softplus=dt_softplus
        )
    else:
        y = _state_step(state, hidden_states, dt, A, B, C, D, dt_bias, softplus=dt_softplus)
    y = y if z is None else y * F.silu(z.to(y.dtype))
    return y.to(hidden_states.dtype)


def _state_step(
    state: Tensor,
    x: Tensor,
    dt: Tensor,
    A: Tensor,  # noqa: N803
    B: Tensor,  # noqa: N803
    C: Tensor,  # noqa: N803
    D: Tensor | None,  # noqa: N803
    dt_bias: Tensor | None,
    *,
    softplus: bool,
) -> Tensor:
    """The recurrence of `selective_state_update` in PyTorch."""
    x, k, q = (a.to(state.dtype) for a in (x, B, C))
    dt = _step(dt[..., :1].to(state.dtype), None if dt_bias is None else dt_bias[:, :1], softplus=softplus)
    b, h, p, s = state.shape
    by_group = (b * B.shape[1], h // B.shape[1] * p)
    kept = state.contiguous()
    kept.mul_((dt * A[:, :1, 0].to(dt.dtype)).exp()[..., None])
    rows = kept.view(*by_group, s)
    rows.baddbmm_((x * dt).reshape(*by_group, 1), k.reshape(-1, 1, s))
    if kept is not state:
        state.copy_(kept)
    y = torch.bmm(rows, q.reshape(-1, s, 1)).view(b, h, p)
    return y if D is None else torch.addcmul(y, x, D.to(x.dtype))


def no_fused_path(*_tensors: object, **_others: object) -> None:
    """Transformers asks for convolution, scan and projection in one call when it trains; ours are single calls."""


def _for_all_heads(x: Float[Tensor, "b n g s"], values: Float[Tensor, "b n h p"]) -> Float[Tensor, "b h n s"]:
    """With the heads in front. A single group is read by all heads where it lies; more are repeated later."""
    x = x.transpose(1, 2)
    return x.expand(-1, values.shape[2], -1, -1) if x.shape[1] == 1 else x


def _step(dt: Tensor, bias: Tensor | None, *, softplus: bool) -> Tensor:
    dt = dt if bias is None else dt + bias.to(dt.dtype)
    return F.softplus(dt) if softplus else dt
