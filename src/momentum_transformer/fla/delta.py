"""Delta rules: plain, gated, and gated for each feature."""

from typing import Any

from torch import Tensor

from .fla_call import STATES, Plan, attend_plainly, log_decay, refuse_head_first, strength, v_first, wide
from .fla_shapes import check_shapes


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
    transpose_state_layout: bool | None = None,
    chunk_size: object = None,
    cu_seqlens_cpu: object = None,
    chunk_indices: object = None,
) -> tuple[Tensor, Tensor | None]:
    """The gated delta rule: S_t = exp(g_t) S_{t-1} + β_t k_t (v_t - exp(g_t) S_{t-1}ᵀ k_t)ᵀ, o_t = scale · S_tᵀ q_t.

    Args:
        q: queries (B, T, H, K).
        k: keys, likewise.
        v: values (B, T, HV, V).
        g: (B, T, HV) log decay, at most 0, or the input of the gate.
        beta: (B, T, HV) write strength, or its logit.
        scale: of the queries, by default K^-½.
        initial_state: (N, HV, K, V); by default zeros.
        output_final_state: whether the states after the last tokens are wanted.
        use_qk_l2norm_in_kernel: whether q and k are divided by their lengths first.
        use_gate_in_kernel: whether the log decay is a gate of g, -exp(A_log) softplus(g + dt_bias).
        A_log: (HV,) of the gate.
        dt_bias: of the gate; None for nothing.
        use_beta_sigmoid_in_kernel: whether beta is a logit, of which the write strength is the sigmoid.
        allow_neg_eigval: whether it is twice the sigmoid.
        state_v_first: whether states are (N, HV, V, K).
        cu_seqlens: (N + 1,) where each of N documents in a batch of one row begins, and where the last one ends.
        head_first: None; heads never come first here.
        transpose_state_layout: the old name of state_v_first.
        chunk_size: of that package's kernels; it changes nothing here.
        cu_seqlens_cpu: likewise.
        chunk_indices: likewise.

    Returns:
        o (B, T, HV, V), and the states after the last tokens where `output_final_state` asks for them.

    Examples:
        >>> q, k, v = torch.randn(3, 2, 50, 4, 16).unbind(0)
        >>> g, beta = -torch.rand(2, 50, 4), torch.rand(2, 50, 4)
        >>> o, state = chunk_gated_delta_rule(q, k, v, g, beta, use_qk_l2norm_in_kernel=True, output_final_state=True)
    """
    refuse_head_first(head_first)
    turned = v_first(state_v_first, transpose_state_layout)
    given = {"g": (g, "B T HV"), "beta": (beta, "B T HV"), "initial_state": (initial_state, STATES[turned])}
    check_shapes(q, k, v, cu_seqlens, given)
    g = log_decay(g, A_log, dt_bias) if use_gate_in_kernel else g
    rule = {"alpha": wide(g).exp(), "eta": strength(beta, use_beta_sigmoid_in_kernel, allow_neg_eigval)}
    plan = Plan(scale, initial_state, output_final_state, cu_seqlens, turned, use_qk_l2norm_in_kernel)
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
    transpose_state_layout: bool | None = None,
    chunk_size: object = None,
    cu_seqlens_cpu: object = None,
    chunk_indices: object = None,
) -> tuple[Tensor, Tensor | None]:
    """`chunk_gated_delta_rule` where g and beta may be missing, and gk may decay each feature.

    The other arguments are those of `chunk_gated_delta_rule`.

    Args:
        g: (B, T, HV) log decay; None for no decay.
        gk: (B, T, HV, K) log decay of each feature of the keys, besides g; None for none.
        gv: None: a decay of each feature of the values is no member of this family.
        beta: (B, T, HV) write strength; None for 1.

    Returns:
        o (B, T, HV, V), and the states after the last tokens where `output_final_state` asks for them.

    Examples:
        >>> q, k, v = torch.randn(3, 2, 50, 4, 16).unbind(0)
        >>> token, _ = fused_recurrent_gated_delta_rule(q[:, :1], k[:, :1], v[:, :1], use_qk_l2norm_in_kernel=True)
    """
    if gv is not None:
        raise ValueError("gv must be None: a decay for each feature of v is no member of this family; use g or gk")
    if use_gate_in_kernel and g is None:
        raise ValueError("use_gate_in_kernel needs g, the input of the gate; gk is a log decay as it is")
    given = {"g": (g, "B T HV"), "gk": (gk, "B T HV K"), "beta": (beta, "B T HV")}
    check_shapes(q, k, v, cu_seqlens, given)
    g = v.new_zeros(v.shape[:3]) if g is None else g
    beta = v.new_ones(v.shape[:3]) if beta is None else beta
    options: dict[str, Any] = {
        "use_qk_l2norm_in_kernel": use_qk_l2norm_in_kernel,
        "use_beta_sigmoid_in_kernel": use_beta_sigmoid_in_kernel,
        "allow_neg_eigval": allow_neg_eigval,
        "state_v_first": v_first(state_v_first, transpose_state_layout),
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
    transpose_state_layout: bool | None = None,
    chunk_size: object = None,
    cu_seqlens_cpu: object = None,
    chunk_indices: object = None,
    safe_gate: bool = False,
    disable_recompute: object = None,
) -> tuple[Tensor, Tensor | None]:
    """Kimi's delta attention: the gated delta rule with a decay for each feature, g (B, T, HV, K).

    The other arguments are those of `chunk_gated_delta_rule`.

    Args:
        g: (B, T, HV, K) log decay of each feature, at most 0, or the input of the gate.
        lower_bound: makes the gate lower_bound · sigmoid(exp(A_log) (g + dt_bias)).
        safe_gate: of that package's kernels; with use_gate_in_kernel it needs a lower_bound, and nothing else changes.
        disable_recompute: of that package's kernels; it changes nothing here.

    Returns:
        o (B, T, HV, V), and the states after the last tokens where `output_final_state` asks for them.

    Examples:
        >>> q, k, v = torch.randn(3, 2, 50, 4, 16).unbind(0)
        >>> g, beta = -torch.rand(2, 50, 4, 16), torch.rand(2, 50, 4)
        >>> o, _ = chunk_kda(q, k, v, g, beta, use_qk_l2norm_in_kernel=True)
    """
    refuse_head_first(head_first)
    if safe_gate and use_gate_in_kernel and lower_bound is None:
        raise ValueError("safe_gate with use_gate_in_kernel needs lower_bound, such as -5.0")
    turned = v_first(state_v_first, transpose_state_layout)
    given = {"g": (g, "B T HV K"), "beta": (beta, "B T HV"), "initial_state": (initial_state, STATES[turned])}
    check_shapes(q, k, v, cu_seqlens, given)
    g = log_decay(g, A_log, dt_bias, lower_bound) if use_gate_in_kernel else g
    rule = {"alpha": wide(g).exp(), "eta": strength(beta, use_beta_sigmoid_in_kernel, allow_neg_eigval)}
    plan = Plan(scale, initial_state, output_final_state, cu_seqlens, turned, use_qk_l2norm_in_kernel)
    return attend_plainly(q, k, v, rule, plan, erases=True)


def fused_recurrent_kda(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    A_log: Tensor | None = None,  # noqa: N803
    dt_bias: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    *,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    lower_bound: float | None = None,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    head_first: object = None,
    transpose_state_layout: bool | None = None,
    chunk_size: object = None,
    cu_seqlens_cpu: object = None,
    chunk_indices: object = None,
) -> tuple[Tensor, Tensor | None]:
    """`chunk_kda` with the gate's weights before the scale, the order of that package.

    The other arguments are those of `chunk_kda`.

    Args:
        A_log: (HV,) of the gate.
        dt_bias: (HV · K,) of the gate; None for nothing.

    Returns:
        o (B, T, HV, V), and the states after the last tokens where `output_final_state` asks for them.

    Examples:
        >>> q, k, v = torch.randn(3, 2, 50, 4, 16).unbind(0)
        >>> g, beta = -torch.rand(2, 50, 4, 16), torch.rand(2, 50, 4)
        >>> o, _ = fused_recurrent_kda(q, k, v, g, beta, use_qk_l2norm_in_kernel=True)
    """
    return chunk_kda(
        *(q, k, v, g, beta, scale, initial_state, output_final_state),
        use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel,
        use_gate_in_kernel=use_gate_in_kernel,
        A_log=A_log,
        dt_bias=dt_bias,
        lower_bound=lower_bound,
        use_beta_sigmoid_in_kernel=use_beta_sigmoid_in_kernel,
        allow_neg_eigval=allow_neg_eigval,
        state_v_first=state_v_first,
        cu_seqlens=cu_seqlens,
        head_first=head_first,
        transpose_state_layout=transpose_state_layout,
    )


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
    chunk_size: object = None,
    cu_seqlens_cpu: object = None,
    chunk_indices: object = None,
) -> tuple[Tensor, Tensor | None]:
    """The delta rule: S_t = S_{t-1} + β_t k_t (v_t - S_{t-1}ᵀ k_t)ᵀ.

    The other arguments are those of `chunk_gated_delta_rule`.

    Args:
        beta: (B, T, HV) write strength; None for 1.

    Returns:
        o (B, T, HV, V), and the states after the last tokens where `output_final_state` asks for them.

    Examples:
        >>> q, k, v = torch.randn(3, 2, 50, 4, 16).unbind(0)
        >>> o, _ = chunk_delta_rule(q, k, v, torch.rand(2, 50, 4), use_qk_l2norm_in_kernel=True)
    """
    refuse_head_first(head_first)
    check_shapes(q, k, v, cu_seqlens, {"beta": (beta, "B T HV"), "initial_state": (initial_state, STATES[False])})
    rule = {} if beta is None else {"eta": wide(beta)}
    plan = Plan(scale, initial_state, output_final_state, cu_seqlens, l2=use_qk_l2norm_in_kernel)
    return attend_plainly(q, k, v, rule, plan, erases=True)


fused_recurrent_delta_rule = chunk_delta_rule
