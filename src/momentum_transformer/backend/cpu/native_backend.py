"""The native backends: which calls they serve, and how they call the kernels."""

from dataclasses import dataclass
from typing import Any

import torch

from ...ops.shapes import Tensor
from ...ops.state import RecurrentState
from ...ops.tracing import asked_while_tracing, eager, transformed
from ..call import Call
from ..pytorch import distance_weights, unknown_to_the_paper
from . import bidirectional_call, step_operator
from .autograd import causal
from .causal_operator import DTYPES
from .library import Missing, native
from .recurrent_autograd import recurrent

SHORT = 1024  # tokens: one thread is done with these before a second one has started


@asked_while_tracing
def status() -> str | None:
    """Why the native kernels are not there; None where they are."""
    found = native()
    return found.reason if isinstance(found, Missing) else None


def _refusal(call: Call) -> str | None:
    """What no native code serves."""
    q, v = call.q, call.v
    if q.device.type != "cpu":
        return f"it runs on the CPU, and q is on {q.device}"
    if q.dtype not in DTYPES:
        return f"it knows {', '.join(str(dtype) for dtype in DTYPES)}, not {q.dtype}"
    if q.shape[0] == 0 or q.shape[1] == 0 or q.shape[3] == 0 or v.shape[3] == 0:
        return "an empty tensor has no rows to point at"
    if transformed():
        return "it knows neither forward-mode derivatives nor the transforms of torch.func"
    return status()


@dataclass(frozen=True)
class Native:
    """Every causal member, token by token in compiled code; linear and momentum attention by kernels of their own."""

    name: str = "native"

    def refusal(self, call: Call) -> str | None:
        if not call.causal:
            return "it needs causal order"
        if call.query_mask is not call.key_mask:
            return "it takes queries and keys for the same tokens, and query_mask differs from key_mask"
        return _refusal(call)

    def run(self, call: Call) -> tuple[Tensor, RecurrentState | None]:
        dtype = call.q.dtype
        x = call
        if not (call.elu or call.feature_map is None):
            x = call.features()
        elif call.state is not None and call.wide != dtype:
            x = call._replace(q=call.q.to(call.wide), k=call.k.to(call.wide), v=call.v.to(call.wide))
        if unknown_to_the_paper(call):
            y, after = _member(x)
            return y.to(dtype), after
        if x.q.shape[2] == 1 and x.key_mask is None and x.return_state and not x.needs_gradients():
            y, one_after = _one_token(x)
            return y.to(dtype), one_after if call.keeps_z else one_after._replace(z=None)
        y, all_after = _all_tokens(x)
        if all_after is None or call.keeps_z:
            return y.to(dtype), all_after
        return y.to(dtype), all_after._replace(z=None)


NATIVE = Native()


def _planes_and_z(x: Call) -> tuple[Tensor | None, Tensor | None]:
    """The state before the first token, as the kernels read it."""
    if x.state is None:
        return None, None
    s, m, z = x.state
    s = s[..., None, :, :] if m is None else torch.stack([s, m], -3)
    return s, s.new_zeros(*s.shape[:2], s.shape[-2]) if z is None else z


def _tokens_that_exist(mask: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """Their positions, in order and before all others, and how many there are."""
    if mask is None:
        return None, None
    return torch.argsort(~mask, dim=-1, stable=True).int().contiguous(), mask.sum(-1, dtype=torch.int32)


def _member(x: Call) -> tuple[Tensor, RecurrentState | None]:
    """Any member of the family."""
    s, z = _planes_and_z(x)
    erase = None if x.erase is None else x.erase.to(x.q.dtype)
    coefficients = (a if a is None or a.ndim == 1 else a.to(x.wide) for a in x.c)
    y, s_after, z_after = recurrent(
        (x.q, x.k, x.v, erase, *coefficients, s, z if x.normalize else None),
        (x.reset, *_tokens_that_exist(x.key_mask)),
        (x.elu, x.normalize, x.eps),
        return_state=x.return_state,
        needs_gradients=x.needs_gradients(),
    )
    if not x.return_state:
        return y, None
    m = None if x.c.beta is None else s_after[..., 1, :, :]
    return y, RecurrentState(s_after[..., 0, :, :], m, z_after if x.keeps_z else None)


def _all_tokens(x: Call) -> tuple[Tensor, RecurrentState | None]:
    y, s_after, z_after = causal(
        (x.q, x.k, x.v, *_planes_and_z(x), *_beta_and_gamma(x)),
        (*_tokens_that_exist(x.key_mask), x.elu, x.normalize, x.eps, x.return_state),
        needs_gradients=x.needs_gradients(),
    )
    if not x.return_state:
        return y, None
    m = None if x.c.beta is None else s_after[..., 1, :, :]
    return y, RecurrentState(s_after[..., 0, :, :], m, z_after)


def _beta_and_gamma(x: Call) -> tuple[Tensor | None, Tensor | None]:
    """As the kernels read them; linear attention has neither."""
    beta, gamma = x.c.beta, x.c.gamma
    if beta is None:
        return None, None
    return beta.contiguous(), (torch.ones_like(beta) if gamma is None else gamma).contiguous()


def _one_token(x: Call) -> tuple[Tensor, RecurrentState]:
    wide = x.wide
    q, k, v = x.q[:, :, 0].to(wide), x.k[:, :, 0].to(wide), x.v[:, :, 0].to(wide)
    s, m, z = x.before(x.k, v[:, :, None])
    z = s.new_zeros(k.shape) if z is None else z
    call: Any = step_operator.step if eager(q, k, v, m, s, z) else torch.ops.momentum.step
    y, m_after, s_after, z_after = call(q, k, v, m, s, z, *_beta_and_gamma(x), x.elu, x.normalize, x.eps)
    return y[:, :, None], RecurrentState(s_after, None if m is None else m_after, z_after)


@dataclass(frozen=True)
class NativeBidirectional:
    """Attention without causal order, where nobody asks for gradients."""

    name: str = "native"

    def refusal(self, call: Call) -> str | None:
        if call.causal:
            return "it has no causal order"
        if not (call.elu or call.feature_map is None):
            return "it knows no feature map but elu + 1"
        if not eager(call.q, call.k, call.v) or call.needs_gradients():
            return "it has no gradients"
        sequences, tokens = call.q.shape[0] * call.q.shape[1], call.q.shape[2] + call.k.shape[2]
        if tokens > SHORT and 2 * sequences < torch.get_num_threads():
            return "it gives a sequence one thread, and PyTorch more than two"
        if call.q.numel() == 0 or call.v.numel() == 0:
            return "an empty tensor has no rows to point at"
        return unknown_to_the_paper(call) or _refusal(call)

    def run(self, call: Call) -> tuple[Tensor, RecurrentState | None]:
        return bidirectional_call.forward(
            call.q,
            call.k,
            call.v,
            distance_weights(call, call.k.shape[2]),
            key_mask=call.key_mask,
            query_mask=call.query_mask,
            elu=call.elu,
            normalize=call.normalize,
            eps=call.eps,
        ), None


NATIVE_BIDIRECTIONAL = NativeBidirectional()
