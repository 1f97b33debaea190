"""Attention that only adds: linear, retention, with decays, with momentum."""

from typing import Any

import torch
from torch import Tensor

from ..ops.state import RecurrentState
from .fla_call import Plan, attend, attend_plainly, refuse_head_first, sum_of_keys, wide


def chunk_simple_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None = None,
    g_gamma: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    *,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    head_first: object = None,
) -> tuple[Tensor, Tensor | None]:
    """Linear attention with a log decay a token or a head: Mamba-2 and others.

    The other arguments are those of `chunk_gated_delta_rule`.

    Args:
        g: (B, T, HV) log decay of each token; None for none.
        g_gamma: (HV,) log decay of each head instead.

    Returns:
        o (B, T, HV, V), and the states after the last tokens where `output_final_state` asks for them.

    Examples:
        >>> q, k, v = torch.randn(3, 2, 50, 4, 16).unbind(0)
        >>> o, _ = chunk_simple_gla(q, k, v, g=-torch.rand(2, 50, 4))
    """
    refuse_head_first(head_first)
    if g is not None and g_gamma is not None:
        raise ValueError("give one of g and g_gamma, not both")
    decay = g if g is not None else g_gamma
    rule = {} if decay is None else {"alpha": wide(decay).exp()}
    return attend_plainly(q, k, v, rule, Plan(scale, initial_state, output_final_state, cu_seqlens, state_v_first))


fused_recurrent_simple_gla = chunk_simple_gla


def chunk_retention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    *,
    cu_seqlens: Tensor | None = None,
    head_first: object = None,
) -> tuple[Tensor, Tensor | None]:
    """Retention: a decay of 1 - 2^(-5-h) in head h.

    The other arguments are those of `chunk_gated_delta_rule`.

    Args:
        q: queries (B, T, H, K).
        k: keys, likewise.
        v: values (B, T, HV, V).

    Returns:
        o (B, T, HV, V), and the states after the last tokens where `output_final_state` asks for them.

    Examples:
        >>> q, k, v = torch.randn(3, 2, 50, 4, 16).unbind(0)
        >>> o, _ = chunk_retention(q, k, v)
    """
    refuse_head_first(head_first)
    alpha = 1 - 2.0 ** (-5.0 - torch.arange(v.shape[2], dtype=torch.float32, device=v.device))
    return attend_plainly(q, k, v, {"alpha": alpha}, Plan(scale, initial_state, output_final_state, cu_seqlens))


fused_recurrent_retention = chunk_retention


def chunk_linear_attn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    initial_state: Any = None,
    output_final_state: bool = False,
    *,
    normalize: bool = True,
    cu_seqlens: Tensor | None = None,
    head_first: object = None,
) -> tuple[Tensor, Any]:
    """Linear attention of features q and k.

    The other arguments are those of `chunk_gated_delta_rule`.

    Args:
        initial_state: (N, H, K, V); with `normalize` the pair of it and of the sum of the keys (N, 1, H, K).
        normalize: whether o is divided by the denominator.

    Returns:
        o (B, T, HV, V), and the states after the last tokens where `output_final_state` asks for them.

    Examples:
        >>> q, k, v = torch.randn(3, 2, 50, 4, 16).unbind(0)
        >>> o, _ = chunk_linear_attn(q.exp(), k.exp(), v)
    """
    refuse_head_first(head_first)
    if not normalize:
        return attend_plainly(q, k, v, {}, Plan(scale, initial_state, output_final_state, cu_seqlens))
    s, z = (initial_state, None) if isinstance(initial_state, Tensor) else initial_state or (None, None)
    before = None if s is None else RecurrentState(s, z=sum_of_keys(z, s))
    plan = Plan(scale, before, output_final_state, cu_seqlens, normalize=True)
    o, after = attend(q, k, v, {}, plan)
    return o, None if after is None or after.z is None else (after.s, after.z[:, None])


def fused_recurrent_linear_attn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    initial_state: Any = None,
    output_final_state: bool = False,
    *,
    normalize: bool = False,
    cu_seqlens: Tensor | None = None,
    head_first: object = None,
) -> tuple[Tensor, Any]:
    """Linear attention of features q and k, by default without the denominator.

    The other arguments are those of `chunk_linear_attn`.

    Args:
        normalize: whether o is divided by the denominator.

    Returns:
        o (B, T, HV, V), and the states after the last tokens where `output_final_state` asks for them.

    Examples:
        >>> q, k, v = torch.randn(3, 2, 50, 4, 16).unbind(0)
        >>> o, state = fused_recurrent_linear_attn(q, k, v, output_final_state=True)
    """
    options: dict[str, Any] = {"normalize": normalize, "cu_seqlens": cu_seqlens, "head_first": head_first}
    return chunk_linear_attn(q, k, v, scale, initial_state, output_final_state, **options)


def chunk_momentum_attn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: float | Tensor,
    gamma: float | Tensor = 1.0,
    scale: float | None = None,
    initial_state: tuple[Tensor, Tensor, Tensor] | None = None,
    output_final_state: bool = False,
    *,
    normalize: bool = True,
    cu_seqlens: Tensor | None = None,
    head_first: object = None,
) -> tuple[Tensor, Any]:
    """The paper's momentum attention of features q and k: M_t = β M_{t-1} + k_t v_tᵀ, S_t = S_{t-1} + γ M_t.

    The other arguments are those of `chunk_gated_delta_rule`.

    Args:
        beta: momentum in [0, 1): a number, (H,), or (B, T, H), one a token.
        gamma: step size, likewise.
        initial_state: S and M (N, H, K, V), and the sum of the keys (N, 1, H, K), None without `normalize`.
        normalize: whether o is divided by the denominator.

    Returns:
        o (B, T, H, V), and the three states where `output_final_state` asks for them.

    Examples:
        >>> q, k, v = torch.randn(3, 2, 50, 4, 16).unbind(0)
        >>> o, _ = chunk_momentum_attn(q.exp(), k.exp(), v, beta=0.6, gamma=0.9)
    """
    refuse_head_first(head_first)
    before = None
    if initial_state is not None:
        s, m, z = initial_state
        before = RecurrentState(s, m, sum_of_keys(z, s) if normalize else None)
    plan = Plan(scale, before, output_final_state, cu_seqlens, normalize=normalize)
    o, after = attend(q, k, v, {"beta": beta, "gamma": gamma}, plan)
    return o, None if after is None else (after.s, after.m, None if after.z is None else after.z[:, None])


fused_recurrent_momentum_attn = chunk_momentum_attn
