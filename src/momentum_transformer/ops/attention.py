"""`momentum_attention` and `linear_attention`: one front door to every form of the paper's equations."""

from typing import Any, Literal, get_args, overload

import torch

from .bidirectional import bidirectional
from .checks import check_choice, check_mask, check_qkv, check_state, check_state_shapes, coefficient
from .feature_maps import FeatureMap, elu_plus_one
from .precision import full_precision
from .recurrences import Backend, Linear, Momentum, Recurrence, run_causal
from .shapes import Bool, Float, Tensor
from .state import LinearState, MomentumState, map_state

Weighting = Literal["relative", "terminal"]
WEIGHTINGS = get_args(Weighting)
CHUNK_SIZE = 128


@overload
def momentum_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    beta: float | Tensor,
    gamma: float | Tensor = ...,
    causal: bool = ...,
    key_mask: Tensor | None = ...,
    query_mask: Tensor | None = ...,
    feature_map: FeatureMap | None = ...,
    weighting: Weighting = ...,
    normalize: bool = ...,
    state: MomentumState | None = ...,
    return_state: Literal[False] = ...,
    chunk_size: int | None = ...,
    backend: Backend = ...,
    eps: float = ...,
) -> Tensor: ...
@overload
def momentum_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    beta: float | Tensor,
    gamma: float | Tensor = ...,
    causal: bool = ...,
    key_mask: Tensor | None = ...,
    query_mask: Tensor | None = ...,
    feature_map: FeatureMap | None = ...,
    weighting: Weighting = ...,
    normalize: bool = ...,
    state: MomentumState | None = ...,
    return_state: Literal[True],
    chunk_size: int | None = ...,
    backend: Backend = ...,
    eps: float = ...,
) -> tuple[Tensor, MomentumState]: ...
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
    backend: Backend = "auto",
    eps: float = 1e-6,
) -> Tensor | tuple[Tensor, MomentumState]:
    """Momentum attention: causal (eq. 12 = eq. 13) or not (eq. 14), in linear time.

    Key j weighs γ(1 - β^(i-j+1))/(1 - β) in the numerator of query i, and 1 in its denominator.

    Args:
        beta: momentum in [0, 1), a number or a tensor (h,) that may need gradients.
        gamma: step size > 0, likewise.
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
        chunk_size: tokens per chunk of the linear-time causal form; changes speed, not results. (But a NaN or Inf
            reaches back to the start of its chunk.)
        backend: "auto", or one form by name: "chunked" (linear time), "quadratic" and "recurrent" (references).
            Without causal order there is one form.
        eps: added to the denominator.
    """
    check_choice("weighting", weighting, WEIGHTINGS)
    check_qkv(q, k, v, causal=causal)
    beta = coefficient("beta", beta, q.shape[1], q.device, below_one=True)
    gamma = coefficient("gamma", gamma, q.shape[1], q.device, below_one=False)
    momentum = Momentum(*torch.broadcast_tensors(beta, gamma))
    recurrence: Recurrence = momentum
    key_weight = None
    if weighting == "terminal":
        if state is not None or return_state:
            raise ValueError(
                'weighting="terminal" weighs keys by the end of the sequence, so it has no state; use "relative"'
            )
        recurrence, key_weight = Linear(), momentum.key_weights(k.shape[2], None)
    y, after = _attend(
        recurrence,
        q,
        k,
        v,
        key_weight=key_weight,
        causal=causal,
        key_mask=key_mask,
        query_mask=query_mask,
        feature_map=feature_map,
        normalize=normalize,
        state=state,
        return_state=return_state,
        chunk_size=chunk_size,
        backend=backend,
        eps=eps,
    )
    return (y, after) if return_state else y


@overload
def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = ...,
    key_mask: Tensor | None = ...,
    query_mask: Tensor | None = ...,
    feature_map: FeatureMap | None = ...,
    normalize: bool = ...,
    state: LinearState | MomentumState | None = ...,
    return_state: Literal[False] = ...,
    chunk_size: int | None = ...,
    backend: Backend = ...,
    eps: float = ...,
) -> Tensor: ...
@overload
def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = ...,
    key_mask: Tensor | None = ...,
    query_mask: Tensor | None = ...,
    feature_map: FeatureMap | None = ...,
    normalize: bool = ...,
    state: LinearState | MomentumState | None = ...,
    return_state: Literal[True],
    chunk_size: int | None = ...,
    backend: Backend = ...,
    eps: float = ...,
) -> tuple[Tensor, LinearState]: ...
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
    backend: Backend = "auto",
    eps: float = 1e-6,
) -> Tensor | tuple[Tensor, LinearState]:
    """Linear attention: causal (eq. 7 = eq. 8) or not (eq. 5). Equals `momentum_attention` at β = 0, γ = 1.

    The arguments are those of `momentum_attention`. Of a `MomentumState`, s and z are used: m has no weight.
    """
    check_qkv(q, k, v, causal=causal)
    if isinstance(state, MomentumState):
        state = LinearState(s=state.s, z=state.z)
    y, after = _attend(
        Linear(),
        q,
        k,
        v,
        key_weight=None,
        causal=causal,
        key_mask=key_mask,
        query_mask=query_mask,
        feature_map=feature_map,
        normalize=normalize,
        state=state,
        return_state=return_state,
        chunk_size=chunk_size,
        backend=backend,
        eps=eps,
    )
    return (y, after) if return_state else y


def _attend(
    recurrence: Recurrence,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    key_weight: Tensor | None,
    causal: bool,
    key_mask: Tensor | None,
    query_mask: Tensor | None,
    feature_map: FeatureMap | None,
    normalize: bool,
    state: Any,
    return_state: bool,
    chunk_size: int | None,
    backend: Backend,
    eps: float,
) -> tuple[Tensor, Any]:
    """Masks, dtypes, features, the recurrence itself, and the division: what all attentions here share."""
    check_choice("backend", backend, get_args(Backend))
    check_mask("key_mask", key_mask, k)
    check_mask("query_mask", query_mask, q)
    if chunk_size is not None and (not isinstance(chunk_size, int) or chunk_size < 1):
        raise ValueError(f"chunk_size must be a positive whole number or None, not {chunk_size!r}")
    if not eps >= 0:
        raise ValueError(f"eps must not be negative, not {eps}")
    if not causal and (state is not None or return_state):
        raise ValueError("state and return_state need causal=True: without causal order there is no recurrence")

    dtype, wide = q.dtype, torch.promote_types(q.dtype, torch.float32)
    if state is not None:
        check_state(state, recurrence.state_type, q.device)
        for tensor in state:
            wide = torch.promote_types(wide, tensor.dtype)
    if query_mask is None and q.shape[2] == k.shape[2]:
        query_mask = key_mask

    with full_precision(q.device):
        q, k, v = (_existing(x, mask).to(wide) for x, mask in ((q, query_mask), (k, key_mask), (v, key_mask)))
        if key_weight is not None:
            v = v * key_weight[..., None].to(wide)
        mask = None if key_mask is None else key_mask[:, None, :]

        after = None
        if causal:
            d = k.shape[-1] if feature_map is None else feature_map(k[:, :, :0]).shape[-1]
            if state is None:
                shapes = _state_shapes(recurrence.state_type, k, v, d)
                state = recurrence.state_type(*(v.new_zeros(shape) for shape in shapes.values()))
            else:
                check_state_shapes(state, _state_shapes(recurrence.state_type, k, v, d))
                state = map_state(lambda x: x.to(wide), state)
            numerator, denominator, after = run_causal(
                recurrence,
                q,
                k,
                v,
                state,
                feature_map=feature_map,
                mask=mask,
                backend=backend,
                chunk_size=chunk_size or CHUNK_SIZE,
                return_state=return_state,
            )
        else:
            if feature_map is not None:
                q, k = feature_map(q), _existing(feature_map(k), key_mask)
            numerator, denominator = bidirectional(q, k, v, recurrence.key_weights(k.shape[2], mask))
        if normalize:
            if query_mask is not None:  # no division by zero where there is no query
                denominator = torch.where(query_mask[:, None, :], denominator, 1)
            # Deviation: eps, so that a query that sees no key gives 0 and not 0/0.
            # a product, because its backward pass needs fewer temporaries than that of a quotient
            numerator = numerator * (1 / (denominator + eps))[..., None]
        return _existing(numerator, query_mask).to(dtype), after


def _existing(x: Tensor, mask: Tensor | None) -> Tensor:
    """Zero where the token does not exist, whatever stands there: a NaN in the padding stays out of sight."""
    return x if mask is None else torch.where(mask[:, None, :, None], x, 0)


def _state_shapes(kind: type[Any], k: Tensor, v: Tensor, d: int) -> dict[str, tuple[int, ...]]:
    """The shape of each part of a state: (b, h, d, e), but z, which is (b, h, d)."""
    lead, e = tuple(k.shape[:2]), v.shape[-1]
    return {name: (*lead, d) if name == "z" else (*lead, d, e) for name in kind._fields}
