"""Attention that only adds: linear, retention, with decays, with momentum."""

from typing import Any

import torch
from torch import Tensor

from ..ops.state import RecurrentState
from .fla_call import STATES, Plan, attend, attend_plainly, refuse_head_first, sum_of_keys, v_first, wide
from .fla_shapes import check_shapes, parts_of_state

KEYS = "N 1 HV K"  # of their sum


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
    transpose_state_layout: bool | None = None,
    chunk_size: object = None,
    cu_seqlens_cpu: object = None,
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
    turned = v_first(state_v_first, transpose_state_layout)
    plan = Plan(scale, initial_state, output_final_state, cu_seqlens, turned)
    return _decayed(q, k, v, g, g_gamma, plan, head_first)


def fused_recurrent_simple_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None = None,
    g_gamma: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    *,
    reverse: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    head_first: object = None,
    transpose_state_layout: bool | None = None,
    chunk_size: object = None,
    cu_seqlens_cpu: object = None,
) -> tuple[Tensor, Tensor | None]:
    """`chunk_simple_gla`, which may run from the last token to the first.

    The other arguments are those of `chunk_simple_gla`.

    Args:
        reverse: whether each token sees those after it instead of those before it.

    Returns:
        o (B, T, HV, V), and the states after the last tokens where `output_final_state` asks for them.

    Examples:
        >>> q, k, v = torch.randn(3, 2, 50, 4, 16).unbind(0)
        >>> o, _ = fused_recurrent_simple_gla(q, k, v, g=-torch.rand(2, 50, 4), reverse=True)
    """
    turned = v_first(state_v_first, transpose_state_layout)
    plan = Plan(scale, initial_state, output_final_state, cu_seqlens, turned, reverse=reverse)
    return _decayed(q, k, v, g, g_gamma, plan, head_first)


def _decayed(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor | None, g_gamma: Tensor | None, plan: Plan, head_first: object
) -> tuple[Tensor, Tensor | None]:
    refuse_head_first(head_first)
    if g is not None and g_gamma is not None:
        raise ValueError("give one of g and g_gamma, not both")
    states = (plan.initial_state, STATES[plan.state_v_first])
    check_shapes(q, k, v, plan.cu_seqlens, {"g": (g, "B T HV"), "g_gamma": (g_gamma, "HV"), "initial_state": states})
    decay = g if g is not None else g_gamma
    rule = {} if decay is None else {"alpha": wide(decay).exp()}
    return attend_plainly(q, k, v, rule, plan)


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
    chunk_size: object = None,
    cu_seqlens_cpu: object = None,
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
    return _retained(q, k, v, Plan(scale, initial_state, output_final_state, cu_seqlens), head_first)


def fused_recurrent_retention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    *,
    reverse: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    head_first: object = None,
    transpose_state_layout: bool | None = None,
    chunk_size: object = None,
    cu_seqlens_cpu: object = None,
) -> tuple[Tensor, Tensor | None]:
    """`chunk_retention`, which may run from the last token to the first.

    The other arguments are those of `chunk_gated_delta_rule`.

    Args:
        reverse: whether each token sees those after it instead of those before it.

    Returns:
        o (B, T, HV, V), and the states after the last tokens where `output_final_state` asks for them.

    Examples:
        >>> q, k, v = torch.randn(3, 2, 50, 4, 16).unbind(0)
        >>> o, _ = fused_recurrent_retention(q, k, v, reverse=True)
    """
    turned = v_first(state_v_first, transpose_state_layout)
    plan = Plan(scale, initial_state, output_final_state, cu_seqlens, turned, reverse=reverse)
    return _retained(q, k, v, plan, head_first)


def _retained(q: Tensor, k: Tensor, v: Tensor, plan: Plan, head_first: object) -> tuple[Tensor, Tensor | None]:
    refuse_head_first(head_first)
    check_shapes(q, k, v, plan.cu_seqlens, {"initial_state": (plan.initial_state, STATES[plan.state_v_first])})
    alpha = 1 - 2.0 ** (-5.0 - torch.arange(v.shape[2], dtype=torch.float32, device=v.device))
    return attend_plainly(q, k, v, {"alpha": alpha}, plan)


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
    plan = Plan(scale, initial_state, output_final_state, cu_seqlens, normalize=normalize)
    return _added(q, k, v, plan, head_first)


def fused_recurrent_linear_attn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    initial_state: Any = None,
    output_final_state: bool = False,
    *,
    reverse: bool = False,
    normalize: bool = False,
    cu_seqlens: Tensor | None = None,
    head_first: object = None,
) -> tuple[Tensor, Any]:
    """Linear attention of features q and k, by default without the denominator.

    The other arguments are those of `chunk_linear_attn`.

    Args:
        reverse: whether each token sees those after it instead of those before it.
        normalize: whether o is divided by the denominator.

    Returns:
        o (B, T, HV, V), and the states after the last tokens where `output_final_state` asks for them.

    Examples:
        >>> q, k, v = torch.randn(3, 2, 50, 4, 16).unbind(0)
        >>> o, state = fused_recurrent_linear_attn(q, k, v, output_final_state=True)
    """
    plan = Plan(scale, initial_state, output_final_state, cu_seqlens, normalize=normalize, reverse=reverse)
    return _added(q, k, v, plan, head_first)


def _added(q: Tensor, k: Tensor, v: Tensor, plan: Plan, head_first: object) -> tuple[Tensor, Any]:
    refuse_head_first(head_first)
    s, z = plan.initial_state, None
    if plan.normalize and s is not None and not isinstance(s, Tensor):
        s, z = parts_of_state(s, 2, "S and the sum of the keys")
    check_shapes(q, k, v, plan.cu_seqlens, {"initial_state": (s, STATES[False]), "the sum of the keys": (z, KEYS)})
    if not plan.normalize:
        return attend_plainly(q, k, v, {}, plan)
    before = None if s is None else RecurrentState(s, z=sum_of_keys(z, s))
    o, after = attend(q, k, v, {}, plan._replace(initial_state=before))
    return o, None if after is None or after.z is None else (after.s, after.z[:, None])


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
    s, m, z = (None, None, None) if initial_state is None else parts_of_state(initial_state, 3, "S, M and the keys")
    given = {"beta": (beta, "number | HV | B T HV"), "gamma": (gamma, "number | HV | B T HV")}
    states = {"S of initial_state": (s, STATES[False]), "M of initial_state": (m, STATES[False])}
    check_shapes(q, k, v, cu_seqlens, {**given, **states, "the sum of the keys": (z, KEYS)})
    before = None if s is None else RecurrentState(s, m, sum_of_keys(z, s) if normalize else None)
    plan = Plan(scale, before, output_final_state, cu_seqlens, normalize=normalize)
    o, after = attend(q, k, v, {"beta": beta, "gamma": gamma}, plan)
    return o, None if after is None else (after.s, after.m, None if after.z is None else after.z[:, None])


fused_recurrent_momentum_attn = chunk_momentum_attn
