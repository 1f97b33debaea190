"""`momentum_attention` and `linear_attention`: one front door to every form of the paper's equations."""

from functools import partial
from typing import Literal, get_args, overload

import torch

from .attend import attend
from .bidirectional import key_weights
from .checks import check_choice, check_number, check_qkv, coefficient
from .feature_maps import FeatureMap, elu_plus_one
from .kept import kept
from .recurrences import Backend, Linear, Momentum, Recurrence
from .shapes import Bool, Float, Tensor
from .state import LinearState, MomentumState

Weighting = Literal["relative", "terminal"]
WEIGHTINGS = get_args(Weighting)


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
        chunk_size: tokens per chunk of the chunked form; changes speed, not results. (But a NaN or Inf reaches back to
            the start of its chunk.) The native form goes token by token and has none.
        backend: "auto", or one causal form by name: "native" (compiled, CPU), "chunked" (PyTorch), "quadratic" and
            "recurrent" (references). Without causal order, "auto" and "native" are compiled code where no gradient is
            wanted, and PyTorch where one is; any other name is PyTorch.
        eps: added to the denominator.
    """
    check_choice("weighting", weighting, WEIGHTINGS)
    check_qkv(q, k, v, causal=causal)
    momentum = _momentum(beta, gamma, q)
    recurrence: Recurrence = momentum
    key_weight = None
    if weighting == "terminal":
        if state is not None or return_state:
            raise ValueError(
                'weighting="terminal" weighs keys by the end of the sequence, so it has no state; use "relative"'
            )
        recurrence = Linear()
        key_weight = key_weights(momentum.by_age(k.shape[2], torch.promote_types(k.dtype, torch.float32)))[..., None]
    y, after = attend(
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


def _momentum(beta: float | Tensor, gamma: float | Tensor, q: Tensor) -> Momentum:
    """The recurrence with these coefficients, one or one a head of q; what belongs to plain numbers is kept."""
    if isinstance(beta, Tensor) or isinstance(gamma, Tensor):
        return _with_coefficients(beta, gamma, q)
    if type(beta) is not float or type(gamma) is not float:
        check_number("beta", beta, below_one=True)
        check_number("gamma", gamma, below_one=False)
        beta, gamma = float(beta), float(gamma)
    return kept((beta, gamma, q.device), partial(_with_coefficients, beta, gamma, q, constant=(beta, gamma)))


def _with_coefficients(
    beta: float | Tensor, gamma: float | Tensor, q: Tensor, constant: tuple[float, float] | None = None
) -> Momentum:
    exact_beta = coefficient("beta", beta, q.shape[1], q.device, below_one=True)
    exact_gamma = coefficient("gamma", gamma, q.shape[1], q.device, below_one=False)
    lead = torch.broadcast_shapes(exact_beta.shape, exact_gamma.shape)
    return Momentum(exact_beta.expand(lead), exact_gamma.expand(lead), constant)


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
    y, after = attend(
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
