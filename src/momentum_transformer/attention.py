"""The front doors: `momentum_attention` and `linear_attention` of the paper, `recurrent_attention` of the family.

Each checks its arguments, makes a `Call` of them, and leaves it to the first backend that does not refuse.
"""

from typing import Any, Literal, get_args

import torch

from .backend.call import Call, hidden
from .backend.choose import BackendName, serve
from .backend.cpu import repeated_step
from .backend.split import serve_split
from .context import current_context, refuse_split
from .ops.bidirectional import key_weights, weights_by_distance
from .ops.checks import check_choice, check_erase, check_mask, check_options, check_qkv, checked_state
from .ops.coefficients import FAMILY, MOMENTUM_ATTENTION, Coefficients, member
from .ops.feature_maps import FeatureMap, elu_plus_one, feature_width
from .ops.shapes import Bool, Float, Tensor
from .ops.state import LinearState, MomentumState, RecurrentState

Weighting = Literal["relative", "terminal"]
WEIGHTINGS = get_args(Weighting)


def momentum_attention(
    q: Float[Tensor, "b h n d"],
    k: Float[Tensor, "b h m d"],
    v: Float[Tensor, "b h m e"],
    *,
    beta: float | Tensor,
    gamma: float | Tensor = 1.0,
    causal: bool = True,
    key_mask: Bool[Tensor, "b m"] | None = None,
    query_mask: Bool[Tensor, "b n"] | None = None,
    feature_map: FeatureMap | None = elu_plus_one,
    weighting: Weighting = "relative",
    normalize: bool = True,
    state: MomentumState | None = None,
    return_state: bool = False,
    chunk_size: int | None = None,
    backend: BackendName = "auto",
    eps: float = 1e-6,
) -> Any:
    """Momentum attention: causal (eq. 12 = eq. 13) or not (eq. 14), in linear time.

    Key j weighs γ(1 - β^(i-j+1))/(1 - β) in the numerator of query i, and 1 in its denominator.

    Args:
        q: queries (b, h, n, d).
        k: keys (b, h, m, d); with causal order as many as queries.
        v: values (b, h, m, e).
        beta: momentum in [0, 1), a number or a tensor (h,) that may need gradients.
        gamma: step size > 0, likewise.
        causal: whether a query sees only the keys up to its own place.
        key_mask: False where a token does not exist: it adds nothing and does not advance the momentum.
        query_mask: False where the output is zero. By default `key_mask`, where queries and keys are equally
            many and so taken for the same tokens; for cross attention at equal lengths, pass all True.
        feature_map: φ, applied to q and k; None where they are features already.
        weighting: "relative" is the paper. "terminal" is what the authors' released code trains: key j weighs
            γ(1 - β^(L-j+1))/(1 - β) for every query, L the padded length. It has no recurrent form.
        normalize: False leaves out the denominator, as the authors' released code does on Long Range Arena (where it
            also divides q and k by length^¼ each, which is left to the caller).
        state: what earlier tokens left behind (causal only).
        return_state: also return the state after the last token (causal only).
        chunk_size: tokens per chunk of the chunked form; changes speed, not results. (But a NaN or Inf reaches back to
            the start of its chunk.) The native form goes token by token and has none.
        backend: "auto", or one causal form by name: "native" (compiled, CPU), "chunked" (PyTorch), "quadratic" and
            "recurrent" (references). Without causal order, "auto" and "native" are compiled code where it can serve
            the call, else PyTorch; any other name is PyTorch.
        eps: added to the denominator.

    Returns:
        y (b, h, n, e), or with `return_state` the pair (y, MomentumState).

    Examples:
        >>> q, k, v = torch.randn(3, 2, 8, 100, 32)
        >>> y, state = momentum_attention(q, k, v, beta=0.6, return_state=True)
    """
    check_choice("weighting", weighting, WEIGHTINGS)
    check_qkv(q, k, v, causal=causal)
    c, numbers = member(q, MOMENTUM_ATTENTION, {"beta": beta, "gamma": gamma})
    dtype = q.dtype
    if weighting == "terminal":
        refuse_split('weighting="terminal"')
        if state is not None or return_state:
            raise ValueError(
                'weighting="terminal" weighs keys by the end of the sequence, so it has no state; use "relative"'
            )
        assert c.beta is not None
        assert c.gamma is not None
        check_mask("key_mask", key_mask, k)
        wide = torch.promote_types(k.dtype, torch.float32)
        weight = key_weights(weights_by_distance(c.beta, c.gamma, k.shape[2]).to(wide))[..., None]
        q, k, v = q.to(wide), k.to(wide), hidden(v, key_mask).to(wide) * weight
        c, numbers = Coefficients(), None
        if not causal and backend in ("auto", "native"):
            backend = "chunked"  # in PyTorch, so that runs of the released code's form repeat to the last digit
    call = Call(
        q,
        k,
        v,
        c,
        feature_map=feature_map,
        causal=causal,
        key_mask=key_mask,
        query_mask=key_mask if query_mask is None and q.shape[2] == k.shape[2] else query_mask,
        return_state=return_state,
        normalize=normalize,
        chunk_size=chunk_size,
        eps=eps,
        numbers=numbers,
    )
    y, after = _serve(call, state, MomentumState, backend)
    if not return_state:
        return y if y.dtype == dtype else y.to(dtype)
    assert after is not None
    return y, MomentumState(m=after.m, s=after.s, z=after.z)  # type: ignore[arg-type]  # momentum has all three


def linear_attention(
    q: Float[Tensor, "b h n d"],
    k: Float[Tensor, "b h m d"],
    v: Float[Tensor, "b h m e"],
    *,
    causal: bool = True,
    key_mask: Bool[Tensor, "b m"] | None = None,
    query_mask: Bool[Tensor, "b n"] | None = None,
    feature_map: FeatureMap | None = elu_plus_one,
    normalize: bool = True,
    state: LinearState | MomentumState | None = None,
    return_state: bool = False,
    chunk_size: int | None = None,
    backend: BackendName = "auto",
    eps: float = 1e-6,
) -> Any:
    """Linear attention: causal (eq. 7 = eq. 8) or not (eq. 5). Equals `momentum_attention` at β = 0, γ = 1.

    The other arguments are those of `momentum_attention`.

    Args:
        q: queries (b, h, n, d).
        k: keys (b, h, m, d); with causal order as many as queries.
        v: values (b, h, m, e).
        state: what earlier tokens left behind; of a `MomentumState`, s and z are used: m has no weight.

    Returns:
        y (b, h, n, e), or with `return_state` the pair (y, LinearState).

    Examples:
        >>> q, k, v = torch.randn(3, 2, 8, 100, 32)
        >>> torch.allclose(linear_attention(q, k, v), momentum_attention(q, k, v, beta=0.0), atol=1e-5)
        True
    """
    check_qkv(q, k, v, causal=causal)
    if isinstance(state, MomentumState):
        state = LinearState(s=state.s, z=state.z)
    call = Call(
        q,
        k,
        v,
        feature_map=feature_map,
        causal=causal,
        key_mask=key_mask,
        query_mask=key_mask if query_mask is None and q.shape[2] == k.shape[2] else query_mask,
        return_state=return_state,
        normalize=normalize,
        chunk_size=chunk_size,
        eps=eps,
    )
    y, after = _serve(call, state, LinearState, backend)
    if not return_state:
        return y
    assert after is not None
    return y, LinearState(s=after.s, z=after.z)  # type: ignore[arg-type]  # z is kept


def recurrent_attention(
    q: Float[Tensor, "b h n d"],
    k: Float[Tensor, "b hk n d"],
    v: Float[Tensor, "b h n e"],
    *,
    alpha: float | Tensor = 1.0,
    beta: float | Tensor = 0.0,
    gamma: float | Tensor = 1.0,
    eta: float | Tensor = 1.0,
    delta: float | Tensor = 0.0,
    erase: Float[Tensor, "b hk n d"] | None = None,
    lookahead: float | Tensor = 0.0,
    normalize: bool = False,
    feature_map: FeatureMap | None = None,
    key_mask: Bool[Tensor, "b n"] | None = None,
    reset: Bool[Tensor, "b n"] | None = None,
    state: RecurrentState | None = None,
    return_state: bool = False,
    backend: BackendName = "auto",
    eps: float = 1e-6,
) -> Any:
    """Every causal member of the family; docs/family.md has them as rows.

        u_t = η_t (v_t - δ_t (s_{t-1} + ρ_t m_{t-1})ᵀ p_t)      p_t = k_t unless `erase` is given
        m_t = β_t m_{t-1} + k_t u_tᵀ
        s_t = α_t s_{t-1} + γ_t m_t
        y_t = s_tᵀ q_t                    with `normalize` divided by q_tᵀ z_t, z_t = z_{t-1} + k_t

    A coefficient is a number, (h,), or (b, h, n), one per token; as a tensor it may need gradients. h are the heads of
    v; q, k and `erase` may have fewer, each of which then serves h / hk heads of v.

    Args:
        q: queries (b, hk, n, d).
        k: keys (b, hk, n, d).
        v: values (b, h, n, e). Under decays the native form needs room: products of k and u beyond the largest number
            over 2³² (in float32 8·10²⁸) may become Inf where other forms are finite.
        alpha: decay of s in [0, 1]; also (b, h, n, d), one for each feature of k. A NaN in a tensor passes, and
            propagates.
        beta: momentum in [0, 1); given per token it may also be 1, since a sigmoid can round to 1.
        gamma: step size.
        eta: write strength.
        delta: erase strength, 0 for no delta rule.
        erase: p, features that are used as they are; by default those of k. Without a delta they change nothing.
        lookahead: ρ; above 0 the prediction is made at s + ρm (Nesterov).
        normalize: whether y is divided by the denominator.
        feature_map: applied to q and k; None where they are features already.
        key_mask: False where a token does not exist: it leaves the state as it is, and its output is zero.
        reset: True where a new document begins: nothing before it exists. `cu_seqlens` makes it from lengths.
        state: what earlier tokens left behind; the state of another member is refused.
        return_state: also return the state after the last token.
        backend: "auto", or one form by name, as in `momentum_attention`. Native gradients go by chunks of 16 tokens: a
            NaN or Inf may reach those of its whole chunk, as far as its document goes.
        eps: added to the denominator.

    Returns:
        y (b, h, n, e), or with `return_state` the pair (y, RecurrentState), in which m is None where β and ρ are the
        number 0, and z is None without `normalize`.

    Examples:
        >>> q, k, v = torch.randn(3, 2, 8, 100, 32)
        >>> decay, strength = torch.rand(2, 2, 8, 100)
        >>> y = recurrent_attention(q, k, v, alpha=decay, eta=strength, delta=decay)  # gated delta rule
    """
    key = None
    whole = key_mask is None and reset is None and current_context() is None
    if return_state and type(state) is RecurrentState and whole:
        tensors = (q, k, v, erase, alpha, beta, gamma, eta, delta, lookahead, *state)
        options = repeated_step.Options(feature_map, normalize, eps, backend)
        key = repeated_step.key_of(tensors, options)
        prepared = None if key is None else repeated_step.find(key)
        found = None if prepared is None else prepared.run(tensors)
        if found is not None:
            return found
    check_qkv(q, k, v, causal=True, grouped=True)
    width = feature_width(k, feature_map)
    check_erase(erase, k, v, width)
    q, k = _every_head(q, v), _every_head(k, v)
    values = {"alpha": alpha, "beta": beta, "gamma": gamma, "eta": eta, "delta": delta, "lookahead": lookahead}
    c, numbers = member(q, FAMILY, values, width=width)
    call = Call(
        q,
        k,
        v,
        c,
        None if erase is None or c.delta is None else _every_head(erase, v),
        feature_map,
        key_mask=key_mask,
        query_mask=key_mask,
        reset=reset,
        return_state=return_state,
        normalize=normalize,
        keeps_z=normalize,
        eps=eps,
        numbers=numbers,
    )
    y, after = _serve(call, state, RecurrentState, backend)
    if key is not None:
        repeated_step.prepare(key, tensors, options)
    return (y, after) if return_state else y


def _every_head(x: Tensor, v: Tensor) -> Tensor:
    """(b, hk, n, d) with each head as often as there are heads of v to it."""
    times = v.shape[1] // max(x.shape[1], 1)
    return x if times <= 1 else x.repeat_interleave(times, 1)


def _serve(call: Call, state: object, kind: type[Any], backend: BackendName) -> tuple[Tensor, RecurrentState | None]:
    """What is left to check of a call, its result, and the state after it where it was asked for."""
    check_options(call.chunk_size, call.eps)
    if call.key_mask is not None or call.query_mask is not None or call.reset is not None:
        check_mask("key_mask", call.key_mask, call.k)
        check_mask("query_mask", call.query_mask, call.q)
        check_mask("reset", call.reset, call.q, meaning="True = a document begins")
    if not call.causal and (state is not None or call.return_state):
        raise ValueError("state and return_state need causal=True: without causal order there is no recurrence")
    if state is not None:
        call = call._replace(state=checked_state(state, kind, call.state_shapes(), call.q))
    context = current_context()
    return serve(call, backend) if context is None else serve_split(call, backend, context)
