"""The native backend of the causal members: which calls it serves, and how it calls the kernels."""

from dataclasses import dataclass

import torch

from ...ops.coefficients import Coefficients
from ...ops.shapes import Tensor
from ...ops.state import RecurrentState
from ...ops.tracing import asked_while_tracing, eager, transformed
from ..call import Call
from ..pytorch import unknown_to_the_paper
from . import step_operator
from .autograd import causal
from .causal_operator import DTYPES
from .library import Missing, native
from .recurrent_autograd import recurrent
from .row_norm_operator import native_map


@asked_while_tracing
def status() -> str | None:
    """Why the native kernels are not there; None where they are."""
    found = native()
    return found.reason if isinstance(found, Missing) else None


def refused_by_all(call: Call) -> str | None:
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
        return refused_by_all(call)

    def run(self, call: Call) -> tuple[Tensor, RecurrentState | None]:
        if _is_one_token(call):
            return _one_token(call)
        dtype = call.q.dtype
        x = call
        if not (call.elu or call.feature_map is None):
            x = call._replace(feature_map=native_map(call.feature_map)).features()
        elif call.state is not None and call.wide != dtype:
            x = call._replace(q=call.q.to(call.wide), k=call.k.to(call.wide), v=call.v.to(call.wide))
        if unknown_to_the_paper(call):
            y, after = _member(x)
            return y.to(dtype), after
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
    """Of a mask (b, n): the positions of the tokens that exist, in order and at the front, and how many there are."""
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
    """β and γ as the kernels read them; None for linear attention."""
    beta, gamma = x.c.beta, x.c.gamma
    if beta is None:
        return None, None
    return beta.contiguous(), (torch.ones_like(beta) if gamma is None else gamma).contiguous()


def _is_one_token(x: Call) -> bool:
    """Whether the step kernel serves this call."""
    if x.q.shape[2] != 1 or not x.return_state or x.key_mask is not None or x.reset is not None:
        return False
    return not x.needs_gradients()


def _one_token(call: Call) -> tuple[Tensor, RecurrentState]:
    known = call.feature_map in step_operator.FEATURES
    x = call if known else call.features()
    wide = x.wide
    q, k, v = [a if a.dtype == wide else a.to(wide) for a in (x.q, x.k, x.v)]
    erase = None if x.erase is None else x.erase.to(wide)
    s, m, z = x.before(k, v)
    c = Coefficients._make([a if a is None or a.ndim == 1 or a.dtype == wide else a.to(wide) for a in x.c])
    options = (step_operator.FEATURES.index(x.feature_map), x.normalize, x.eps)
    if eager(q, k, v, erase, m, s, z, *c):
        y, after = step_operator.one_token(q, k, v, erase, (m, s, z), c, *options)
    else:
        y, *after = torch.ops.momentum.step(q, k, v, erase, m, s, z, *c, *options)
    m_after, s_after, z_after = after
    y = y if y.dtype == call.q.dtype else y.to(call.q.dtype)
    return y, RecurrentState(s_after, None if m is None else m_after, None if z is None else z_after)
