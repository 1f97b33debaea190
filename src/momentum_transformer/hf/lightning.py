"""MiniMax's lightning attention. Transformers has no kernel function here, so its whole forward is ours."""

from typing import Any

import torch
from torch import Tensor, nn

from ..attention import recurrent_attention
from ..ops.shapes import Float
from ..ops.state import RecurrentState
from .packing import document_starts


def lightning_attention(
    mixer: Any,
    hidden_states: Float[Tensor, "b n width"],
    position_embeddings: object = None,
    attention_mask: Tensor | None = None,
    past_key_values: Any = None,
    *,
    cu_seq_lens_q: Tensor | None = None,
    seq_idx: Tensor | None = None,
    **_others: object,
) -> tuple[Float[Tensor, "b n width"], Float[Tensor, "b h d d"]]:
    """The forward of `MiniMaxLightningAttention`: its output, and the state after the last token."""
    b, n, _ = hidden_states.shape
    qkv = mixer.act_fn(mixer.qkv_proj(hidden_states))
    if attention_mask is not None:
        qkv = qkv * attention_mask[..., None].to(qkv.dtype)
    q, k, v = qkv.view(b, n, mixer.num_attention_heads, -1).transpose(1, 2).split(mixer.head_dim, -1)
    before = None if past_key_values is None else past_key_values.get_linear_cache(mixer.layer_idx)
    wide = torch.promote_types(qkv.dtype, torch.float32)
    y, after = recurrent_attention(
        q,
        k,
        v,
        alpha=torch.exp(-mixer.slope_rate.to(wide)).flatten(),
        reset=document_starts(b, n, cu_seqlens=cu_seq_lens_q, seq_idx=seq_idx),
        state=None if before is None else RecurrentState(before.to(wide), None, None),
        return_state=True,
    )
    y = mixer.norm(y.transpose(1, 2).reshape(b, n, -1))
    y = mixer.out_proj(nn.functional.sigmoid(mixer.output_gate(hidden_states)) * y)
    if past_key_values is not None:
        past_key_values.set_linear_cache(mixer.layer_idx, after.s)
    return y, after.s
