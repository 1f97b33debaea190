"""The compiled library: whether it is there, which instruction set it runs, and how it is called."""

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .build import LIBRARY, REALS, VARIANTS, digest


class Rows(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("b", ctypes.c_int64), ("h", ctypes.c_int64), ("n", ctypes.c_int64))

    @classmethod
    def of(cls, x: Tensor) -> "Rows":
        """A (b, h, n, d) or (b, h, d) tensor whose last axis is contiguous."""
        b, h, *n = x.stride()[:-1]
        return cls(x.data_ptr(), b, h, n[0] if n else 0)


def _integers(names: str) -> list[tuple[str, Any]]:
    return [(name, ctypes.c_int64) for name in names.split()]


def _rows(names: str) -> list[tuple[str, Any]]:
    return [(name, Rows) for name in names.split()]


def _pointers(names: str) -> list[tuple[str, Any]]:
    return [(name, ctypes.c_void_p) for name in names.split()]


class Problem(ctypes.Structure):
    """native/problem.h, field by field."""

    _fields_ = (
        *_integers("b h n d e segment divide sum_segments table_heads elu normalize threads dtype"),
        ("eps", ctypes.c_double),
        *_rows("q k v y"),
        *_pointers("denominator rows count beta gamma s z s_after z_after prefix"),
        *_rows("dy dq dk dv"),
        *_pointers("ds_after dz_after ds dz d_coefficients"),
        *_integers("m"),
        *_pointers("key_mask query_mask by_age"),
    )


class Step(ctypes.Structure):
    """native/problem.h, field by field."""

    _fields_ = (
        *_integers("b h d e lanes table_heads elu normalize threads"),
        ("eps", ctypes.c_double),
        *_rows("q k v y"),
        *_pointers("beta gamma m s z m_after s_after z_after"),
    )


class Connect(ctypes.Structure):
    """native/problem.h, field by field."""

    _fields_ = (
        *_integers("rows width first"),
        *((name, ctypes.c_double) for name in ("beta", "gamma", "eps")),
        *_pointers("x update previous weight bias velocity out"),
    )


class Product(ctypes.Structure):
    """native/program.h, field by field."""

    _fields_ = (*_integers("rows inner outer activation"), *_pointers("x weights bias out"))


class Recall(ctypes.Structure):
    """native/program.h, field by field."""

    _fields_ = (
        *_integers("b h d e room"),
        ("scale", ctypes.c_double),
        *_rows("q k v y"),
        *_pointers("keys values mask count"),
    )


class Task(ctypes.Structure):
    """native/program.h, field by field."""

    _fields_ = (*_integers("kind"), *_pointers("what"))


class Program(ctypes.Structure):
    """native/program.h, field by field."""

    _fields_ = (*_integers("count threads"), *_pointers("tasks"))


STRUCTURES = (Problem, Step, Connect, Product, Recall, Task, Program)


class Functions(NamedTuple):
    """What the library computes, in one type of number."""

    forward: Any
    backward: Any
    bidirectional: Any
    step: Any
    program: Any


class Native(NamedTuple):
    """The functions of one instruction set."""

    variant: str
    single: Functions
    double: Functions

    def of(self, dtype: torch.dtype) -> Functions:
        """Those for tensors of this dtype; narrow ones are computed with in float32."""
        return self.double if dtype == torch.float64 else self.single


class Missing(NamedTuple):
    reason: str


@cache
def native() -> Native | Missing:
    """The library in the best instruction set this processor has, or why there is none.

    MOMENTUM_ISA names another: generic, avx2 or avx512. MOMENTUM_NATIVE names another library; 0 means none.
    """
    asked = os.environ.get("MOMENTUM_NATIVE")
    if asked == "0":
        return Missing("switched off by MOMENTUM_NATIVE=0")
    path = Path(asked) if asked else Path(__file__).parent / LIBRARY
    if not path.exists():
        return Missing("not compiled: run `python -m momentum_transformer.backend.cpu.build` where a C++ compiler is")
    try:
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
    return None if x is None else x.data_ptr()


def aligned(x: Tensor) -> Tensor:
    """With a contiguous last axis, which is all that the kernels ask for."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def empty_rows(like: Tensor, rows: Tensor | None) -> Tensor:
    """In the layout of `like`; rows that do not exist are never written, so they are zero from the start."""
    made = torch.empty_like(like) if rows is None else torch.zeros_like(like)
    return made if made.stride(-1) == 1 or made.shape[-1] == 1 else made.contiguous()
