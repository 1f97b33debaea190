"""One token on the caches of Transformers' mixers, in native code: a short convolution, and Mamba-2's recurrence.

Both change their cache in place and know no gradients: `serves` says whether a call may come here.
"""

import torch
from torch import Tensor

from ...ops.tracing import eager
from .causal_operator import DTYPES, run, wide_dtype
from .convolution_operator import MOST_TAPS
from .library import ConvolutionStep, StateStep, without_memory
from .native_backend import status
from .operator_checks import check_tensor


def serves(cache: Tensor, *tensors: Tensor | None) -> bool:
    """Whether native code may run one token on this cache."""
    if cache.dtype not in DTYPES or not cache.is_contiguous() or not cache.numel() or status() is not None:
        return False
    graph = torch.is_grad_enabled()
    for one in (cache, *tensors):  # not a generator: this runs for each token in each layer
        if one is not None and (not one.is_cpu or (graph and one.requires_grad)):
            return False
    return eager(cache, *tensors)


def _as(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Contiguous, in this dtype."""
    return x if x.dtype == dtype and x.is_contiguous() else x.to(dtype).contiguous()


def _address(name: str, x: Tensor) -> int:
    """Of a tensor that kernels may read and write as one block."""
    if not x.is_cpu or not x.is_contiguous():
        raise ValueError(f"{name} must be contiguous and on the CPU, not {x.device} with strides {x.stride()}")
    return x.data_ptr() or without_memory(x)


def convolution_step(x: Tensor, cache: Tensor, weight: Tensor, bias: Tensor | None, *, silu: bool) -> Tensor:
    """x (b, c) convolved with weight (c, taps) and the tokens before it in `cache` (b, c, kept), which takes it in."""
    (b, c), (_, taps), wide = x.shape, weight.shape, wide_dtype(cache)
    if not 2 <= taps <= MOST_TAPS or cache.ndim != 3 or cache.shape[2] < taps - 1:
        raise ValueError(f"{taps} taps do not fit a cache of {tuple(cache.shape)}")
    kept = cache.shape[2]
    check_tensor("cache", cache, (b, c, kept), cache.dtype)
    x, weight = _as(x, cache.dtype), _as(weight, wide)
    bias = None if bias is None else _as(bias, wide)
    check_tensor("weight", weight, (c, taps), wide)
    check_tensor("bias", bias, (c,), wide)
    y = torch.empty_like(x)
    threads = max(1, min(torch.get_num_threads(), b * c // 2**14))
    sizes = (b, c, taps, kept, silu, threads, DTYPES.index(cache.dtype))
    of_bias = None if bias is None else _address("bias", bias)
    read = _address("x", x), _address("weight", weight), of_bias
    step = ConvolutionStep(*sizes, *read, _address("cache", cache), _address("y", y))
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
    (b, h, e, s), g, dtype, wide = state.shape, k.shape[1], state.dtype, wide_dtype(state)
    x, k, q, dt, rate = _as(x, dtype), _as(k, dtype), _as(q, dtype), _as(dt, wide), _as(rate, wide)
    dt_bias = None if dt_bias is None else _as(dt_bias, wide)
    skip = None if skip is None else _as(skip, wide)
    check_tensor("x", x, (b, h, e), dtype)
    check_tensor("k", k, (b, g, s), dtype)
    check_tensor("q", q, (b, g, s), dtype)
    check_tensor("dt", dt, (b, h), wide)
    check_tensor("rate", rate, (h,), wide)
    check_tensor("dt_bias", dt_bias, (h,), wide)
    check_tensor("skip", skip, (h,), wide)
    y = torch.empty_like(x)
    threads = max(1, min(torch.get_num_threads(), state.numel() // 2**16))
    named = {"x": x, "k": k, "q": q, "dt": dt, "dt_bias": dt_bias, "rate": rate, "skip": skip, "state": state, "y": y}
    addresses = [None if one is None else _address(name, one) for name, one in named.items()]
    step = StateStep(*(b, h, g, e, s, softplus, threads, DTYPES.index(dtype)), *addresses)
    run("state_step", step, dtype)
    return y
