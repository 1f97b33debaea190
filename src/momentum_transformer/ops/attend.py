"""What all attentions here share: checks, masks, dtypes, features, the choice of a form, and the division."""

from typing import Any, get_args

import torch

from .bidirectional import bidirectional, key_weights
from .checks import check_choice, check_mask, check_state, check_state_shapes
from .feature_maps import FeatureMap, elu_plus_one
from .native import attend_native, attend_unordered, native_refusal
from .precision import full_precision
from .recurrences import CHUNK_SIZE, Backend, Recurrence, run_causal
from .shapes import Tensor
from .state import map_state


def attend(
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

    if not (q.numel() and v.numel()) and backend == "native":
        backend = "chunked"  # there is nothing to compute
    elif causal and backend in ("auto", "native"):
        why_not = native_refusal(q, v, key_mask=key_mask, query_mask=query_mask)
        if why_not is None:
            elu = feature_map is elu_plus_one
            if key_weight is not None or not (elu or feature_map is None):
                with full_precision(q.device):
                    q, k, v = (_existing(x, key_mask).to(wide) for x in (q, k, v))
                    if key_weight is not None:
                        v = v * key_weight.to(wide)
                    if feature_map is not None and not elu:
                        q, k = feature_map(q).to(wide), feature_map(k).to(wide)
            if state is not None:
                check_state_shapes(state, _state_shapes(recurrence.state_type, k, v, k.shape[-1]))
                state = map_state(lambda x: x.to(wide), state)
                q, k, v = q.to(wide), k.to(wide), v.to(wide)
            y, after = attend_native(
                recurrence,
                q,
                k,
                v,
                state,
                mask=key_mask,
                elu=elu,
                normalize=normalize,
                eps=eps,
                return_state=return_state,
                wide=wide,
            )
            return y.to(dtype), after
        if backend == "native":
            raise ValueError(f'backend="native" cannot be used: {why_not}')

    plain = key_weight is None and (feature_map is None or feature_map is elu_plus_one)
    if not causal and plain and backend in ("auto", "native"):
        unordered = attend_unordered(
            recurrence,
            q,
            k,
            v,
            key_mask=key_mask,
            query_mask=query_mask,
            elu=feature_map is not None,
            normalize=normalize,
            eps=eps,
            wide=wide,
        )
        if unordered is not None:
            return unordered, None

    with full_precision(q.device):
        # where φ(-∞) = 0, a key that does not exist need not be hidden a second time
        nothing = -torch.inf if feature_map is elu_plus_one and not causal else 0
        if not causal:  # heads side by side are copied once, not in every product
            q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        q, k, v = (_existing(q, query_mask), _existing(k, key_mask, nothing), _existing(v, key_mask))
        q, k, v = q.to(wide), k.to(wide), v.to(wide)
        if key_weight is not None:
            v = v * key_weight.to(wide)
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
                q, k = feature_map(q), feature_map(k)
                k = k if nothing else _existing(k, key_mask)
            by_age = recurrence.by_age(k.shape[2], wide)
            weight = None if by_age is None else key_weights(by_age, mask=mask)[..., None]
            numerator, denominator = bidirectional(q, k, v, weight)
        if normalize:
            if query_mask is not None:  # no division by zero where there is no query
                denominator = torch.where(query_mask[:, None, :], denominator, 1)
            # Deviation: eps, so that a query that sees no key gives 0 and not 0/0.
            # a product, because its backward pass needs fewer temporaries than that of a quotient
            numerator = numerator * (1 / (denominator + eps))[..., None]
        return _existing(numerator, query_mask).to(dtype), after


def _existing(x: Tensor, mask: Tensor | None, nothing: float = 0) -> Tensor:
    """`nothing` where the token does not exist, whatever stands there: a NaN in the padding stays out of sight."""
    return x if mask is None else torch.where(mask[:, None, :, None], x, nothing)


def _state_shapes(kind: type[Any], k: Tensor, v: Tensor, d: int) -> dict[str, tuple[int, ...]]:
    """The shape of each part of a state: (b, h, d, e), but z, which is (b, h, d)."""
    lead, e = tuple(k.shape[:2]), v.shape[-1]
    return {name: (*lead, d) if name == "z" else (*lead, d, e) for name in kind._fields}
