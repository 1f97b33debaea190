"""A call whose sequence is split over processes: each computes its part from nothing, then adds what was before it.

A recurrence is linear in its state, so a part of a sequence leaves transition @ before + state. Columns of the state
do not know of each other: what a part does to any state, and how its queries read any state, is what it does to the
columns of the identity. Where nothing is erased, one number for each pair of s and m says the same.
"""

import torch

from ..context import Context, refuse_split
from ..ops.coefficients import Coefficients
from ..ops.feature_maps import length_scaled
from ..ops.recurrent import Attended
from ..ops.shapes import Tensor
from ..ops.state import RecurrentState
from .call import Call
from .choose import BackendName, serve
from .cpu.row_norm_operator import native_map
from .pytorch import finished
from .surroundings import refusal


def serve_split(call: Call, name: BackendName, context: Context) -> tuple[Tensor, RecurrentState | None]:
    """This part's y, and the state after this part."""
    if not call.causal:
        refuse_split("attention without causal order")
    if call.feature_map is length_scaled:
        refuse_split("a feature map that knows the length")
    if call.state is not None:
        refuse_split("a state of earlier tokens")
    native = name in ("auto", "native") and refusal(call.q) is None
    x = call._replace(feature_map=native_map(call.feature_map) if native else call.feature_map).features()
    x = x._replace(return_state=True, normalize=False, keeps_z=False)
    numerator, s, m = _scan(x, name, context)
    denominator, z = None, None
    if call.normalize or (call.keeps_z and call.return_state):  # z sums keys as linear attention sums values of one
        ones = x.v.new_ones(*x.v.shape[:3], 1)
        denominator, z, _ = _scan(x._replace(v=ones, c=Coefficients(), erase=None, numbers=None), name, context)
        denominator, z = denominator.squeeze(-1), z.squeeze(-1)
    read = Attended(numerator, denominator, RecurrentState(s, m, z if call.keeps_z else None))
    return finished(call, read), read.state if call.return_state else None


def _scan(x: Call, name: BackendName, context: Context) -> tuple[Tensor, Tensor, Tensor | None]:
    """Numerators, s and m after this part; of a call of features, without a denominator."""
    y, after = serve(x, name)
    planes, state = 1 if x.c.beta is None else 2, _stacked(after)  # (b, h, planes · d, e)
    if x.q.shape[2] == 0:  # no token, but gradients travel through this process, and all of its inputs get some
        inputs = [one for one in (x.k, x.v, x.erase, *x.c) if one is not None]
        state = state + torch.stack([0 * one.sum().to(state.dtype) for one in inputs]).sum()
    reads, transition = (_of_matrices if erases(x.c) else _of_numbers)(x, name, planes)
    rows = state.reshape(*state.shape[:2], transition.shape[-1], -1)
    before = context.state_before(transition, rows)
    rows = transition @ before + rows
    s, *m = rows.reshape(state.shape).chunk(planes, -2)
    return y + reads @ before.reshape(state.shape), s, m[0] if m else None


def erases(c: Coefficients) -> bool:
    """Whether features of the state mix, or fade apart: then a transition is a matrix of their number."""
    return c.delta is not None or (c.alpha is not None and c.alpha.ndim == 4)


def _of_matrices(x: Call, name: BackendName, planes: int) -> tuple[Tensor, Tensor]:
    """How queries read the state before (b, h, n, planes · d), and what this part makes of it."""
    d = x.k.shape[-1]
    zeros = x.v.new_zeros(*x.v.shape[:3], planes * d)
    reads, after = serve(x._replace(v=zeros, state=_identity(x, d, planes)), name)
    return reads, _stacked(after)


def _of_numbers(x: Call, name: BackendName, planes: int) -> tuple[Tensor, Tensor]:
    """The same from one number for each pair of planes."""
    ones, zeros = (x.q.new_full((*x.q.shape[:3], width), value) for width, value in ((1, 1.0), (planes, 0.0)))
    one = x._replace(q=ones, k=torch.zeros_like(ones), v=zeros, erase=None, state=_identity(x, 1, planes))
    gains, after = serve(one, name)
    reads = (gains[..., None] * x.q[..., None, :]).flatten(-2)
    return reads, _stacked(after)


def _identity(x: Call, d: int, planes: int) -> RecurrentState:
    """A state of planes · d columns, each with one 1."""
    eye = torch.eye(planes * d, dtype=x.v.dtype, device=x.v.device).expand(*x.v.shape[:2], -1, -1)
    s, *m = eye.chunk(planes, -2)
    return RecurrentState(s, m[0] if m else None)


def _stacked(state: RecurrentState | None) -> Tensor:
    assert state is not None
    return state.s if state.m is None else torch.cat([state.s, state.m], -2)
