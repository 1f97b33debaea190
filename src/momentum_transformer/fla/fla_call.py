"""From tokens-first tensors, log decays and packed documents to calls of `recurrent_attention`, and back."""

import itertools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 (the field's name for it)
from torch import Tensor

from ..attention import recurrent_attention
from ..ops.documents import cu_seqlens as resets
from ..ops.feature_maps import l2_normalized
from ..ops.state import RecurrentState, map_state, reorder_state
from .fla_shapes import check_count

EPS = 1e-10  # flash-linear-attention's, added to the denominator after scaling
STATES = ("N HV K V", "N HV V K")  # by whether v comes first


class Plan(NamedTuple):
    """What a call asks for besides its rule."""

    scale: float | None
    initial_state: Any
    output_final_state: bool
    cu_seqlens: Tensor | None
    state_v_first: bool = False
    l2: bool = False
    normalize: bool = False
    reverse: bool = False


Rule = Mapping[str, float | Tensor]  # coefficients by name: numbers, (H,), or with tokens first (B, T, H, ...)


def attend_plainly(
    q: Tensor, k: Tensor, v: Tensor, rule: Rule, plan: Plan, *, erases: bool = False
) -> tuple[Tensor, Tensor | None]:
    """`attend` with one matrix as the state."""
    s = plan.initial_state
    if s is not None:
        plan = plan._replace(initial_state=RecurrentState(s.mT if plan.state_v_first else s))
    o, after = attend(q, k, v, rule, plan, erases=erases)
    if after is None:
        return o, None
    return o, after.s.mT.contiguous() if plan.state_v_first else after.s


def attend(
    q: Tensor, k: Tensor, v: Tensor, rule: Rule, plan: Plan, *, erases: bool = False
) -> tuple[Tensor, RecurrentState | None]:
    """o (B, T, HV, V) by this rule, and the state after each sequence where it is asked for."""
    if plan.reverse:
        return _attend_backwards(q, k, v, rule, plan, erases=erases)
    if plan.initial_state is not None:
        dtype = torch.promote_types(q.dtype, torch.float32)
        plan = plan._replace(initial_state=map_state(lambda part: part.to(dtype), plan.initial_state))
    if plan.cu_seqlens is None:
        return _call(q, k, v, rule, plan, erases=erases)
    boundaries = _boundaries(plan.cu_seqlens, q, plan.initial_state)
    if plan.initial_state is None and not plan.output_final_state:
        return _call(q, k, v, rule, plan, erases=erases, reset=resets(plan.cu_seqlens, q.shape[1]))
    made = []
    for number, (start, stop) in enumerate(itertools.pairwise(boundaries)):
        one = slice(start, stop)
        part = {name: x[:, one] if isinstance(x, Tensor) and x.ndim > 1 else x for name, x in rule.items()}
        before = plan.initial_state
        if before is not None:
            before = reorder_state(before, torch.tensor([number]))
        made.append(_call(q[:, one], k[:, one], v[:, one], part, plan._replace(initial_state=before), erases=erases))
    o = torch.cat([y for y, _ in made], 1)
    if not plan.output_final_state:
        return o, None
    columns = zip(*(state for _, state in made if state is not None), strict=True)
    s, m, z = (None if column[0] is None else torch.cat(column) for column in columns)
    assert s is not None
    return o, RecurrentState(s, m, z)


def _attend_backwards(
    q: Tensor, k: Tensor, v: Tensor, rule: Rule, plan: Plan, *, erases: bool
) -> tuple[Tensor, RecurrentState | None]:
    """`attend` from the last token to the first; of packed documents the last one comes first, too."""
    q, k, v = (x.flip(1) for x in (q, k, v))
    rule = {name: x.flip(1) if isinstance(x, Tensor) and x.ndim > 1 else x for name, x in rule.items()}
    boundaries, before = plan.cu_seqlens, plan.initial_state
    if boundaries is not None:
        _boundaries(boundaries, q, before)
        boundaries = boundaries[-1] - boundaries.flip(0)
        before = None if before is None else map_state(lambda part: part.flip(0), before)
    plan = plan._replace(reverse=False, cu_seqlens=boundaries, initial_state=before)
    o, after = attend(q, k, v, rule, plan, erases=erases)
    if boundaries is not None and after is not None:
        after = map_state(lambda part: part.flip(0), after)
    return o.flip(1), after


def _call(
    q: Tensor, k: Tensor, v: Tensor, rule: Rule, plan: Plan, *, erases: bool, reset: Tensor | None = None
) -> tuple[Tensor, RecurrentState | None]:
    """One call: heads before tokens, and what a rule erases with."""
    scale = k.shape[-1] ** -0.5 if plan.scale is None else plan.scale
    if plan.normalize and scale <= 0:
        raise ValueError(f"scale must be positive where outputs are divided by the keys' sum, not {scale}")
    dtype, widest = q.dtype, torch.promote_types(torch.promote_types(q.dtype, k.dtype), v.dtype)
    q, k, v = (x.transpose(1, 2).to(widest) for x in (q, k, v))
    coefficients = {
        name: x.transpose(1, 2).contiguous() if isinstance(x, Tensor) and x.ndim > 1 else x for name, x in rule.items()
    }
    feature_map = l2_normalized if plan.l2 else None
    erase = None
    alpha = coefficients.get("alpha", 1.0)
    if erases and isinstance(alpha, Tensor) and alpha.ndim == 4:  # features decay apart: what a key still finds
        q, k, v = (wide(x) for x in (q, k, v))
        q, k = (q, k) if feature_map is None else (feature_map(q), feature_map(k))
        k = k.repeat_interleave(v.shape[1] // max(k.shape[1], 1), 1)
        q = q.repeat_interleave(v.shape[1] // max(q.shape[1], 1), 1)
        erase, feature_map = alpha.to(k.dtype) * k, None
    found = recurrent_attention(
        q,
        k,
        v,
        **coefficients,  # type: ignore[arg-type]  # names of coefficients
        delta=(1.0 if erase is not None else alpha) if erases else 0.0,
        erase=erase,
        feature_map=feature_map,
        normalize=plan.normalize,
        reset=reset,
        state=plan.initial_state,
        return_state=plan.output_final_state,
        eps=EPS / scale if plan.normalize else 1e-6,
    )
    y, state = found if plan.output_final_state else (found, None)
    # with a denominator the scale stands above and below
    return (y if plan.normalize else scale * y).transpose(1, 2).to(dtype), state


def _boundaries(boundaries: Tensor, q: Tensor, state: RecurrentState | None) -> list[int]:
    resets(boundaries, q.shape[1])  # refuses what does not rise from 0
    if q.shape[0] != 1 or int(boundaries[-1]) != q.shape[1]:
        raise ValueError(
            f"cu_seqlens must end at the {q.shape[1]} tokens of a batch of 1, not at {int(boundaries[-1])} of a batch "
            f"of {q.shape[0]}; put the documents one after the other"
        )
    documents = len(boundaries) - 1
    if state is not None and state.s.shape[0] != documents:
        raise ValueError(f"initial_state must have {documents} rows, one a document, not {state.s.shape[0]}")
    return [int(place) for place in boundaries]


def wide(x: Tensor) -> Tensor:
    """x in float32 or wider."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def strength(beta: Tensor, is_logit: bool, doubled: bool) -> Tensor:
    """β, or made of its logit; twice as much where updates may reflect."""
    if doubled and not is_logit:
        raise ValueError("allow_neg_eigval needs use_beta_sigmoid_in_kernel=True; otherwise double beta yourself")
    if not is_logit:
        return wide(beta)
    return (2.0 if doubled else 1.0) * wide(beta).sigmoid()


def log_decay(
    g: Tensor,
    a_log: Tensor | None,
    dt_bias: Tensor | None,
    lower_bound: float | None = None,
) -> Tensor:
    """-exp(A_log) softplus(g + dt_bias), or with a lower bound, lower_bound · sigmoid(exp(A_log) (g + dt_bias))."""
    if a_log is None and lower_bound is None:
        raise ValueError("use_gate_in_kernel needs A_log, one number a head")
    heads = g.shape[2:3]  # (B, T, HV) or (B, T, HV, K)
    check_count("A_log", a_log, g.shape[2], "one a head of v")
    of_features = "one a head of v" if g.ndim == 3 else "one a feature of q and head of v"
    check_count("dt_bias", dt_bias, math.prod(g.shape[2:]), of_features)
    g = wide(g)
    if dt_bias is not None:
        g = g + wide(dt_bias).view(g.shape[2:])
    rate = None if a_log is None else wide(a_log).view(*heads, *(1,) * (g.ndim - 3)).exp()
    if lower_bound is not None:
        return lower_bound * (g if rate is None else rate * g).sigmoid()
    assert rate is not None
    return -rate * F.softplus(g)


def sum_of_keys(z: Tensor | None, s: Tensor) -> Tensor:
    """z (N, 1, H, K) as (N, H, K); zeros like the rows of s (N, H, K, V) where there is none."""
    return s.new_zeros(s.shape[:3]) if z is None else z[:, 0]


def v_first(state_v_first: bool, transpose_state_layout: bool | None) -> bool:
    """Whether states are (N, HV, V, K), by either name."""
    if transpose_state_layout is None:
        return state_v_first
    if state_v_first:
        raise ValueError("give one of state_v_first and its old name transpose_state_layout, not both")
    return transpose_state_layout


def refuse_head_first(head_first: object) -> None:
    if head_first is not None:
        raise ValueError("head_first is not taken: tensors are (batch, tokens, heads, width); use x.transpose(1, 2)")
