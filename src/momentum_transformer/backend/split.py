"""A call whose sequence is split over processes: each finds out the state before its part, and goes on from there.

A recurrence is linear in its state, so a part of a sequence leaves transition @ before + state, where `state` is what
it leaves from nothing. Columns of a state are independent, so the transition is what a part makes of the identity's
columns; where nothing is erased, it is one number for each pair of the planes s and m.
"""

import torch

from ..context import Context, refuse_split
from ..ops.coefficients import Coefficients
from ..ops.feature_maps import feature_width, length_scaled
from ..ops.shapes import Tensor
from ..ops.state import RecurrentState
from .call import Call
from .choose import BackendName, serve


def serve_split(call: Call, name: BackendName, context: Context) -> tuple[Tensor, RecurrentState | None]:
    """This part's y, and the state after this part."""
    if not call.causal:
        refuse_split("attention without causal order")
    if call.feature_map is length_scaled:
        refuse_split("a feature map that knows the length")
    if call.state is not None:
        refuse_split("a state of earlier tokens")
    before = _state_before(call, name, context)
    y, after = serve(call._replace(state=before), name)
    if call.q.shape[2] == 0:  # no token, but gradients travel through this process
        y = y + torch.stack([part.sum() for part in before if part is not None]).sum().to(y.dtype)
    return y, after


def _state_before(call: Call, name: BackendName, context: Context) -> RecurrentState:
    """The state before this part, from the summaries of the parts of the processes before."""
    x = call._replace(q=call.q.detach(), return_state=True)  # nobody reads y
    transition, (s, m, z) = (_by_columns if erases(x.c) else _by_numbers)(x, name)
    state = s if m is None else torch.cat([s, m], -2)  # (b, h, planes · d, e)
    if x.q.shape[2] == 0:  # all inputs get gradients, in every process
        inputs = [one for one in (x.k, x.v, x.erase, *x.c) if one is not None]
        nothing = torch.stack([0 * one.sum().to(state.dtype) for one in inputs]).sum()
        state, z = state + nothing, None if z is None else z + nothing
    rows = state.reshape(*state.shape[:2], transition.shape[-1], -1)
    s, *of_m = context.state_before(transition, rows).reshape(state.shape).chunk(1 if m is None else 2, -2)
    if z is not None:  # nothing but a new document changes what was summed
        kept = z.new_ones(*z.shape[:2], 1, 1)
        if x.reset is not None:
            kept = torch.where(x.reset.any(1)[:, None, None, None], 0, kept)
        z = context.state_before(kept, z[..., None, :]).squeeze(-2)
    return RecurrentState(s, of_m[0] if of_m else None, z)


def erases(c: Coefficients) -> bool:
    """Whether the transition is a matrix over features: the delta rule mixes them, and channels may decay apart."""
    return c.delta is not None or (c.alpha is not None and c.alpha.ndim == 4)


def _by_columns(x: Call, name: BackendName) -> tuple[Tensor, RecurrentState]:
    """Transition matrix and state from zero in one call: the columns of the identity are appended to v."""
    e, d = x.v.shape[-1], feature_width(x.k, x.feature_map)
    identity = _identity(x, d)
    zeros = identity.s.new_zeros(*x.v.shape[:2], d, e)
    before = RecurrentState(
        torch.cat([zeros, identity.s], -1),
        None if identity.m is None else torch.cat([zeros, identity.m], -1),
        zeros[..., 0] if x.keeps_z else None,
    )
    v = torch.cat([x.v, x.v.new_zeros(*x.v.shape[:3], identity.s.shape[-1])], -1)
    _, after = serve(x._replace(v=v, state=before), name)
    assert after is not None
    s, m, z = after
    state = RecurrentState(s[..., :e], None if m is None else m[..., :e], z)
    return (s if m is None else torch.cat([s, m], -2))[..., e:], state


def _by_numbers(x: Call, name: BackendName) -> tuple[Tensor, RecurrentState]:
    """The transition (b, h, planes, planes), and the state from nothing."""
    _, state = serve(x, name)
    before = _identity(x, 1)
    one, planes = (x.v.new_zeros(*x.v.shape[:3], width, dtype=x.wide) for width in (1, before.s.shape[-1]))
    x = x._replace(q=one, k=one, v=planes, erase=None, feature_map=None, normalize=False, keeps_z=False, state=before)
    _, after = serve(x, name)
    assert state is not None
    assert after is not None
    return after.s if after.m is None else torch.cat([after.s, after.m], -2), state


def _identity(x: Call, d: int) -> RecurrentState:
    """The identity as a state of d features: planes · d columns, each with a single 1 in s or m."""
    planes = 1 if x.c.beta is None else 2
    eye = torch.eye(planes * d, dtype=x.wide, device=x.v.device).expand(*x.v.shape[:2], -1, -1)
    s, *m = eye.chunk(planes, -2)
    return RecurrentState(s, m[0] if m else None)
