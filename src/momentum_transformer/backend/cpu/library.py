"""The compiled library: whether it can be loaded, for which instruction set, and the structures of its arguments."""

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .build import LIBRARY, REALS, VARIANTS, digest, is_whole


def without_memory(x: Tensor) -> int:
    """What stands in for the address of a tensor that has none: it is empty, or cannot be read."""
    if x.numel():
        raise ValueError(f"a tensor {tuple(x.shape)} has no memory: its storage was freed or resized to 0")
    return 0


class TensorView(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("b", ctypes.c_int64), ("h", ctypes.c_int64), ("n", ctypes.c_int64))

    @classmethod
    def of(cls, x: Tensor) -> "TensorView":
        """A (b, h, n, d) or (b, h, d) tensor whose last axis is contiguous."""
        steps = x.stride()
        return cls(x.data_ptr() or without_memory(x), steps[0], steps[1], steps[2] if len(steps) == 4 else 0)


def _integers(names: str) -> list[tuple[str, Any]]:
    return [(name, ctypes.c_int64) for name in names.split()]


def _views(names: str) -> list[tuple[str, Any]]:
    return [(name, TensorView) for name in names.split()]


def _pointers(names: str) -> list[tuple[str, Any]]:
    return [(name, ctypes.c_void_p) for name in names.split()]


class Problem(ctypes.Structure):
    """native/problem.h, field by field."""

    _fields_ = (
        *_integers("b h n d e segment split_sequence sum_segments coefficient_heads elu normalize threads dtype"),
        ("eps", ctypes.c_double),
        *_views("q k v y"),
        *_pointers("denominator token_index token_count beta gamma s z s_after z_after prefix"),
        *_views("dy dq dk dv"),
        *_pointers("ds_after dz_after ds dz d_coefficients"),
        *_integers("key_count"),
        *_pointers("key_mask query_mask distance_weights d_distance_weights stop"),
    )


class Coefficient(ctypes.Structure):
    """native/problem.h, field by field."""

    _fields_ = tuple(_pointers("heads tokens"))


class CoefficientGradient(ctypes.Structure):
    """native/problem.h, field by field."""

    _fields_ = tuple(_pointers("heads tokens"))


class FamilyProblem(Problem):
    """native/problem.h: what this adds to a Problem."""

    _fields_ = (
        *_integers("channels"),
        ("coefficients", Coefficient * 6),
        *_views("erase"),
        *_pointers("reset predictions"),
        *_views("d_erase"),
        ("d_family", CoefficientGradient * 6),
    )


class Step(ctypes.Structure):
    """native/problem.h, field by field."""

    _fields_ = (
        *_integers("b h d e coefficient_heads channels features normalize threads check"),
        ("eps", ctypes.c_double),
        ("scale", ctypes.c_double),
        *_views("q k v y erase"),
        ("coefficients", Coefficient * 6),
        *_pointers("m s z m_after s_after z_after"),
    )


class ResidualNorm(ctypes.Structure):
    """native/program.h, field by field."""

    _fields_ = (
        *_integers("rows width first_layer"),
        *((name, ctypes.c_double) for name in ("beta", "gamma", "eps")),
        *_pointers("x update previous_update weight bias velocity out"),
    )


class Linear(ctypes.Structure):
    """native/program.h, field by field."""

    _fields_ = (*_integers("rows in_features out_features stride activation"), *_pointers("x weights bias factor out"))


class Gate(ctypes.Structure):
    """native/program.h, field by field."""

    _fields_ = (*_integers("kind complement"), ("most", ctypes.c_double), *_pointers("logits rate offset out"))


class Gates(ctypes.Structure):
    """native/program.h, field by field."""

    _fields_ = (*_integers("b h count stride"), ("gates", Gate * 4))


class Convolution(ctypes.Structure):
    """native/program.h, field by field."""

    _fields_ = (*_integers("b h d taps silu stride"), *_pointers("x weights past"))


class NormAndGate(ctypes.Structure):
    """native/program.h, field by field."""

    _fields_ = (*_integers("b h e stride"), ("eps", ctypes.c_double), *_pointers("weight logits y"))


class CachedAttention(ctypes.Structure):
    """native/program.h, field by field."""

    _fields_ = (
        *_integers("b h d e capacity given"),
        ("scale", ctypes.c_double),
        *_views("q k v y"),
        *_pointers("key_cache value_cache mask steps"),
    )


class Task(ctypes.Structure):
    """native/program.h, field by field."""

    _fields_ = (*_integers("kind chained"), *_pointers("params"))


class Program(ctypes.Structure):
    """native/program.h, field by field."""

    _fields_ = (*_integers("count threads"), *_pointers("tasks"))


class LineConvolution(ctypes.Structure):
    """native/surroundings.h, field by field."""

    _fields_ = (
        *_integers("b n c taps silu threads dtype turned"),
        *_views("x y"),
        *_pointers("weight bias mask reset past after"),
        *_views("dy dx"),
        *_pointers("d_after d_past d_parts d_weight d_bias stop"),
    )


class RowNorm(ctypes.Structure):
    """native/surroundings.h, field by field."""

    _fields_ = (
        *_integers("b h n d mean gating threads dtype"),
        ("eps", ctypes.c_double),
        *_views("x gate y"),
        *_pointers("weight"),
        *_views("dy dx d_gate"),
        *_pointers("d_weight stop"),
    )


class ConvolutionStep(ctypes.Structure):
    """native/surroundings.h, field by field."""

    _fields_ = (*_integers("b c taps kept silu threads dtype"), *_pointers("x weight bias cache y"))


class StateStep(ctypes.Structure):
    """native/surroundings.h, field by field."""

    _fields_ = (
        *_integers("b h g e s softplus threads dtype"),
        *_pointers("x k q dt dt_bias rate skip state y"),
    )


# as dispatch.cpp lists their sizes
STRUCTURES = (
    *(Problem, FamilyProblem, Step, ResidualNorm, Linear, Gates, Convolution, NormAndGate),
    *(CachedAttention, Task, Program, LineConvolution, RowNorm, ConvolutionStep, StateStep),
)
# the kinds of Task, as native/program.h numbers them
TASKS = (Linear, Step, CachedAttention, ResidualNorm, Convolution, Gates, NormAndGate)


class Functions(NamedTuple):
    """The entry points of the library for one floating-point type."""

    forward: Any
    backward: Any
    bidirectional: Any
    bidirectional_backward: Any
    family_forward: Any
    family_backward: Any
    step: Any
    decode: Any
    convolution: Any
    convolution_backward: Any
    row_norm: Any
    row_norm_backward: Any
    convolution_step: Any
    state_step: Any


class Native(NamedTuple):
    """The functions of one instruction set."""

    variant: str
    single: Functions
    double: Functions

    def of(self, dtype: torch.dtype) -> Functions:
        """The functions for tensors of this dtype; bfloat16 and float16 are computed in float32."""
        return self.double if dtype == torch.float64 else self.single


class Missing(NamedTuple):
    reason: str


@cache
def native() -> Native | Missing:
    """The library in the best instruction set this processor has, or why there is none.

    MOMENTUM_ISA names another: generic, avx2 or avx512. MOMENTUM_NATIVE names another library; 0 means none.
    """
    named = os.environ.get("MOMENTUM_NATIVE")
    if named == "0":
        return Missing("switched off by MOMENTUM_NATIVE=0")
    path = Path(named) if named else Path(__file__).parent / LIBRARY
    if not path.exists():
        return Missing("not compiled: run `python -m momentum_transformer.backend.cpu.build` where a C++ compiler is")
    try:
        if not is_whole(path):
            return Missing("damaged: run `python -m momentum_transformer.backend.cpu.build`")
        library = ctypes.CDLL(str(path))
        library.momentum_sizes.restype = ctypes.c_int64
        sizes = [library.momentum_sizes(i) for i in range(len(STRUCTURES) + 1)]
        found = library.momentum_variants()
    except (OSError, AttributeError) as error:
        return Missing(f"cannot be loaded: {error}")
    if sizes != [*(ctypes.sizeof(kind) for kind in STRUCTURES), digest()]:
        return Missing("compiled from other sources: run `python -m momentum_transformer.backend.cpu.build`")
    names = [name for bit, name in enumerate(VARIANTS) if found >> bit & 1]
    wanted = os.environ.get("MOMENTUM_ISA", names[-1])
    if wanted not in names:
        return Missing(f"MOMENTUM_ISA={wanted}, but this processor runs {', '.join(names)}")
    return Native(
        wanted,
        *(Functions(*(library[f"momentum_{name}_{wanted}_{real}"] for name in Functions._fields)) for real in REALS),
    )


def pointer(x: Tensor | None) -> int | None:
    return None if x is None else x.data_ptr() or without_memory(x)


def contiguous_rows(x: Tensor) -> Tensor:
    """x, or a copy whose last axis is contiguous, which is all that the kernels need."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def empty_rows(like: Tensor, mask: Tensor | None) -> Tensor:
    """An output in the layout of `like`. Kernels do not write masked rows, so with a mask it starts as zeros."""
    made = torch.empty_like(like) if mask is None else torch.zeros_like(like)
    return made if made.stride(-1) == 1 or made.shape[-1] == 1 else made.contiguous()
