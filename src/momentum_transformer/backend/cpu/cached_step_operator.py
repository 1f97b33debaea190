"""One token on the caches of Transformers' mixers, in native code: a short convolution, and Mamba-2's recurrence.

Both change their cache in place and know no gradients: `serves` says whether a call may come here.
"""

import torch
from torch import Tensor

from ...ops.tracing import eager
from .causal_operator import DTYPES, run, wide_dtype
from .convolution_operator import MOST_TAPS
from .library import ConvolutionStep, StateStep, pointer
from .native_backend import status
from .operator_checks import check_tensor


def serves(cache: Tensor, *tensors: Tensor | None) -> bool:
    """Whether native code may run one token on this cache."""
    some = [one for one in (cache, *tensors) if one is not None]
    return (
        cache.dtype in DTYPES
        and cache.is_contiguous()
        and cache.numel() > 0
        and all(one.device.type == "cpu" for one in some)
        and not (torch.is_grad_enabled() and any(one.requires_grad for one in some))
        and eager(*some)
        and status() is None
    )


def convolution_step(x: Tensor, cache: Tensor, weight: Tensor, bias: Tensor | None, *, silu: bool) -> Tensor:
    """x (b, c) convolved with weight (c, taps) and the tokens before it in `cache` (b, c, kept), which takes it in."""
    (b, c), (_, taps), wide = x.shape, weight.shape, wide_dtype(cache)
    if not 2 <= taps <= MOST_TAPS or cache.ndim != 3 or cache.shape[2] < taps - 1:
        raise ValueError(f"{taps} taps do not fit a cache of {tuple(cache.shape)}")
    check_tensor("cache", cache, (b, c, cache.shape[2]), cache.dtype)
    x, weight = x.to(cache.dtype).contiguous(), weight.to(wide).contiguous()
    bias = None if bias is None else bias.to(wide).contiguous()
    check_tensor("weight", weight, (c, taps), wide)
    check_tensor("bias", bias, (c,), wide)
    y = torch.empty_like(x)
    step = ConvolutionStep(b=b, c=c, taps=taps, kept=cache.shape[2], silu=silu, dtype=DTYPES.index(cache.dtype))
    step.threads = max(1, min(torch.get_num_threads(), b * c // 2**14))
    step.x, step.weight, step.bias = x.data_ptr(), weight.data_ptr(), pointer(bias)
    step.cache, step.y = cache.data_ptr(), y.data_ptr()
    run("convolution_step", step, cache.dtype)
    return y


def state_step(
    state: Tensor,
    x: Tensor,
    k: Tensor,
    q: Tensor,
    dt: Tensor,
    rate: Tensor,
    *,
    dt_bias: Tensor | None,
    skip: Tensor | None,
    softplus: bool,
) -> Tensor:
    """x (b, h, e) written under the keys k (b, g, s) into `state` (b, h, e, s), which q reads.

    A head forgets by exp(rate dt) and writes dt x kᵀ; skip x is added to what is read. dt is (b, h), the others (h,).
    """
    if state.ndim != 4 or k.ndim != 3 or k.shape[1] < 1 or state.shape[1] % k.shape[1]:
        raise ValueError(f"keys {tuple(k.shape)} do not fit a state of {tuple(state.shape)}")
    (b, h, e, s), g, wide = state.shape, k.shape[1], wide_dtype(state)
    x, k, q = (one.to(state.dtype).contiguous() for one in (x, k, q))
    for name, one, shape in (("x", x, (b, h, e)), ("k", k, (b, g, s)), ("q", q, (b, g, s))):
        check_tensor(name, one, shape, state.dtype)
    dt, rate = dt.to(wide).contiguous(), rate.to(wide).contiguous()
    dt_bias, skip = (None if one is None else one.to(wide).contiguous() for one in (dt_bias, skip))
    check_tensor("dt", dt, (b, h), wide)
    for name, of_heads in (("rate", rate), ("dt_bias", dt_bias), ("skip", skip)):
        check_tensor(name, of_heads, (h,), wide)
    y = torch.empty_like(x)
    step = StateStep(b=b, h=h, g=g, e=e, s=s, softplus=softplus, dtype=DTYPES.index(state.dtype))
    step.threads = max(1, min(torch.get_num_threads(), state.numel() // 2**16))
    step.x, step.k, step.q, step.dt = x.data_ptr(), k.data_ptr(), q.data_ptr(), dt.data_ptr()
    step.dt_bias, step.rate, step.skip = pointer(dt_bias), rate.data_ptr(), pointer(skip)
    step.state, step.y = state.data_ptr(), y.data_ptr()
    run("state_step", step, state.dtype)
    return y
