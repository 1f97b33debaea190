"""One token after another: a call like one that has been checked is not checked again.

What `recurrent_attention` checks of one token depends on shapes, strides, dtypes and plain numbers, and on the values
of coefficients. The former are a key, under which the arguments of the kernel are kept that follow from them; the
latter are checked by the kernel.
"""

import struct
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...ops.coefficients import FAMILY, member
from ...ops.feature_maps import FeatureMap
from ...ops.state import RecurrentState
from ...ops.tracing import eager, transformed
from .library import Missing, Native, Step, native, pointer, without_memory
from .step_operator import ELEMENTS_PER_THREAD, FEATURES, step_problem

MOST = 256  # kinds of calls that are kept; beyond, all are dropped
LAYOUT = struct.Struct("10q2d38q")  # a Step, field by field
PACK = LAYOUT.pack
_PREPARED: dict[Any, "PreparedStep | None"] = {}
OUT_OF_RANGE = 2  # what the kernel returns for a coefficient that is not allowed


class Options(NamedTuple):
    """What else decides how a token is computed."""

    feature_map: FeatureMap | None
    normalize: bool
    eps: float
    backend: str


def key_of(tensors: tuple[Any, ...], options: Options) -> tuple[Any, ...] | None:
    """All that decides how a call of one token runs, but for values; None where it has to go the usual way.

    `tensors` are q, k, v, erase, the six coefficients, s, m and z.
    """
    if transformed() or not eager() or options.feature_map not in FEATURES:
        return None
    if type(options.eps) is not float or type(options.backend) is not str or type(options.normalize) is not bool:
        return None
    learned = torch.is_grad_enabled()
    parts: list[Any] = [options]
    for x in tensors:
        if type(x) is Tensor:
            if not x.is_cpu or x.is_neg() or (learned and x.requires_grad):
                return None
            parts += (x.shape, x.stride(), x.dtype)
        elif x is None or type(x) is float:
            parts.append(x)
        else:
            return None
    return tuple(parts)


def find(key: tuple[Any, ...]) -> "PreparedStep | None":
    found = _PREPARED.get(key)
    return found if found is not None and found.native is native() else None


def prepare(key: tuple[Any, ...], tensors: tuple[Any, ...], options: Options) -> None:
    """Keep what such a call needs, after one has run."""
    if key in _PREPARED or options.backend not in ("auto", "native") or tensors[0].shape[2] != 1:
        return
    if len(_PREPARED) >= MOST:
        _PREPARED.clear()
    found = native()
    try:
        _PREPARED[key] = None if isinstance(found, Missing) else PreparedStep(tensors, options, found)
    except ValueError:  # a layout or a dtype that the kernel does not take as it is
        _PREPARED[key] = None


class PreparedStep:
    """The arguments of the kernel, without pointers."""

    def __init__(self, tensors: tuple[Any, ...], options: Options, found: Native) -> None:
        q, k, v, erase, *values, s, m, z = tensors
        with torch.inference_mode(False), torch.no_grad():
            c = member(q, FAMILY, dict(zip(FAMILY, values, strict=True)), width=q.shape[3])[0]
        if any(isinstance(given, Tensor) and x is not given for given, x in zip(values, c, strict=True)):
            raise ValueError("a coefficient has to be converted at every call")
        y, state = torch.empty(v.shape, dtype=v.dtype), (m, s, z)
        problem = step_problem(
            *(q, k, v, y),
            erase=erase,
            before=state,
            after=state,
            c=c,
            features=FEATURES.index(options.feature_map),
            normalize=options.normalize,
            eps=options.eps,
        )
        fields = [name for name, *_ in Step._fields_]
        self.sizes = tuple(getattr(problem, name) for name in fields[: fields.index("threads")])
        self.threads = 1 + s.numel() // ELEMENTS_PER_THREAD
        self.numbers = (problem.eps, problem.scale)
        self.strides = [(x.b, x.h, x.n) for x in (problem.q, problem.k, problem.v, problem.y, problem.erase)]
        self.constants = [None if x is None or x.ndim > 1 else x for x in c]
        self.pointers = [number for x in self.constants for number in (pointer(x) or 0, 0)]
        self.tokens = [i for i, x in enumerate(c) if x is not None and x.ndim > 1]
        self.native, self.function = found, found.of(v.dtype).step

    def run(self, tensors: tuple[Any, ...]) -> tuple[Tensor, RecurrentState] | None:
        """y and the state after the token; None where a coefficient is out of range, or a tensor has no memory.

        The usual way then says why, or serves tensors that need none.
        """
        q, k, v, erase, *values, s, m, z = tensors
        y, s_after = torch.empty_like(v, memory_format=torch.contiguous_format), torch.empty_like(s)
        m_after = None if m is None else torch.empty_like(m)
        z_after = None if z is None else torch.empty_like(z)
        at_q, at_k, at_v, at_y, at_erase = self.strides
        coefficients = self.pointers.copy()
        try:
            for i in self.tokens:
                coefficients[2 * i + 1] = pointer(values[i]) or 0
            problem = PACK(
                *self.sizes,
                min(torch.get_num_threads(), self.threads),
                1,
                *self.numbers,
                *(q.data_ptr() or without_memory(q), *at_q, k.data_ptr() or without_memory(k), *at_k),
                *(v.data_ptr() or without_memory(v), *at_v, y.data_ptr(), *at_y),
                *(pointer(erase) or 0, *at_erase),
                *coefficients,
                *(pointer(m) or 0, s.data_ptr() or without_memory(s), pointer(z) or 0),
                *(pointer(m_after) or 0, s_after.data_ptr(), pointer(z_after) or 0),
            )
        except ValueError:
            return None
        code = self.function(problem)
        if code == OUT_OF_RANGE:
            return None
        if code:
            raise MemoryError("the native kernels found no memory for their scratch")
        return y, RecurrentState(s_after, m_after, z_after)
