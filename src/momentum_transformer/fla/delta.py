"""Delta rules: plain, gated, and gated for each feature."""

from typing import Any

from torch import Tensor

from .fla_call import Plan, attend_plainly, log_decay, refuse_head_first, strength, wide


def chunk_gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    *,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    A_log: Tensor | None = None,  # noqa: N803 (that package's name)
    dt_bias: Tensor | None = None,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    head_first: object = None,
) -> tuple[Tensor, Tensor | None]:
    """The gated delta rule: S_t = exp(g_t) S_{t-1} + β_t k_t (v_t - exp(g_t) S_{t-1}ᵀ k_t)ᵀ, o_t = scale · S_tᵀ q_t.

    Args:
        g: (B, T, HV) log decay, at most 0; with `use_gate_in_kernel` the input of -exp(A_log) softplus(g + dt_bias).
        beta: (B, T, HV) write strength; with `use_beta_sigmoid_in_kernel` its logit, `allow_neg_eigval` doubles it.
        scale: by default K^-½.
        initial_state: (N, HV, K, V), or (N, HV, V, K) with `state_v_first`.
        use_qk_l2norm_in_kernel: whether q and k are divided by their lengths first.

    Returns:
        o (B, T, HV, V), and the states after the last tokens where `output_final_state` asks for them.
    """
    refuse_head_first(head_first)
    g = log_decay(g, A_log, dt_bias) if use_gate_in_kernel else g
    rule = {"alpha": wide(g).exp(), "eta": strength(beta, use_beta_sigmoid_in_kernel, allow_neg_eigval)}
    plan = Plan(scale, initial_state, output_final_state, cu_seqlens, state_v_first, use_qk_l2norm_in_kernel)
    return attend_plainly(q, k, v, rule, plan, erases=True)


def fused_recurrent_gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None = None,
    gk: Tensor | None = None,
    gv: Tensor | None = None,
    beta: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    *,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    A_log: Tensor | None = None,  # noqa: N803
    dt_bias: Tensor | None = None,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    head_first: object = None,
) -> tuple[Tensor, Tensor | None]:
    """`chunk_gated_delta_rule` where g and beta may be missing, and gk (B, T, HV, K) may decay each feature."""
    if gv is not None:
        raise ValueError("gv must be None: a decay for each feature of v is no member of this family; use g or gk")
    g = v.new_zeros(v.shape[:3]) if g is None else g
    beta = v.new_ones(v.shape[:3]) if beta is None else beta
    options: dict[str, Any] = {
        "use_qk_l2norm_in_kernel": use_qk_l2norm_in_kernel,
        "use_beta_sigmoid_in_kernel": use_beta_sigmoid_in_kernel,
        "allow_neg_eigval": allow_neg_eigval,
        "state_v_first": state_v_first,
        "cu_seqlens": cu_seqlens,
        "head_first": head_first,
    }
    g = log_decay(g, A_log, dt_bias) if use_gate_in_kernel else g
    if gk is not None:
        return chunk_kda(q, k, v, wide(g)[..., None] + gk, beta, scale, initial_state, output_final_state, **options)
    return chunk_gated_delta_rule(q, k, v, g, beta, scale, initial_state, output_final_state, **options)


def chunk_kda(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    *,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    A_log: Tensor | None = None,  # noqa: N803
    dt_bias: Tensor | None = None,
    lower_bound: float | None = None,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    head_first: object = None,
) -> tuple[Tensor, Tensor | None]:
    """Kimi's delta attention: the gated delta rule with a decay for each feature, g (B, T, HV, K).

    The arguments are those of `chunk_gated_delta_rule`; `lower_bound` makes the gate of `use_gate_in_kernel`
    lower_bound · sigmoid(exp(A_log) (g + dt_bias)).
    """
    refuse_head_first(head_first)
    g = log_decay(g, A_log, dt_bias, lower_bound) if use_gate_in_kernel else g
    rule = {"alpha": wide(g).exp(), "eta": strength(beta, use_beta_sigmoid_in_kernel, allow_neg_eigval)}
    plan = Plan(scale, initial_state, output_final_state, cu_seqlens, state_v_first, use_qk_l2norm_in_kernel)
    return attend_plainly(q, k, v, rule, plan, erases=True)


fused_recurrent_kda = chunk_kda


def chunk_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    *,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
    head_first: object = None,
) -> tuple[Tensor, Tensor | None]:
    """The delta rule: S_t = S_{t-1} + β_t k_t (v_t - S_{t-1}ᵀ k_t)ᵀ; β is 1 where it is not given."""
    refuse_head_first(head_first)
    rule = {} if beta is None else {"eta": wide(beta)}
    plan = Plan(scale, initial_state, output_final_state, cu_seqlens, l2=use_qk_l2norm_in_kernel)
    return attend_plainly(q, k, v, rule, plan, erases=True)


fused_recurrent_delta_rule = chunk_delta_rule
