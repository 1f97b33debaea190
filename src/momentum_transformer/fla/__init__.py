"""Functions with flash-linear-attention's names, layout and arguments, computed by `recurrent_attention`.

Tokens come before heads: q, k (B, T, H, K), v (B, T, HV, V), where HV is a multiple of H. `g` is the logarithm of a
decay. States are (N, HV, K, V) in float32, one a sequence; with `cu_seqlens` (N + 1,) a batch of one row holds N
documents, and each has its own. There is one algorithm, so `chunk_*` and `fused_recurrent_*` give the same. Arguments
that steer GPU kernels and change no result (`chunk_size`, `cu_seqlens_cpu`, `chunk_indices`, `disable_recompute`) are
taken and change nothing.
"""

from .delta import (
    chunk_delta_rule,
    chunk_gated_delta_rule,
    chunk_kda,
    fused_recurrent_delta_rule,
    fused_recurrent_gated_delta_rule,
    fused_recurrent_kda,
)
from .linear import (
    chunk_linear_attn,
    chunk_momentum_attn,
    chunk_retention,
    chunk_simple_gla,
    fused_recurrent_linear_attn,
    fused_recurrent_momentum_attn,
    fused_recurrent_retention,
    fused_recurrent_simple_gla,
)

__all__ = [
    "chunk_delta_rule",
    "chunk_gated_delta_rule",
    "chunk_kda",
    "chunk_linear_attn",
    "chunk_momentum_attn",
    "chunk_retention",
    "chunk_simple_gla",
    "fused_recurrent_delta_rule",
    "fused_recurrent_gated_delta_rule",
    "fused_recurrent_kda",
    "fused_recurrent_linear_attn",
    "fused_recurrent_momentum_attn",
    "fused_recurrent_retention",
    "fused_recurrent_simple_gla",
]
