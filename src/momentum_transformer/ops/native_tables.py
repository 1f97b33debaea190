"""The tables of weights that the native kernels read: weights by age, one row or one a head.

Momentum is linear attention, times γ/(1 - β), minus a part that decays as β^distance. Where β is a plain number and
that part is gone within a chunk, the kernel carries the state of linear attention and looks back at the few keys of
the chunk before that still lack something. Otherwise it carries s and m.
"""

import math
from typing import NamedTuple

import torch

from ..kernels.causal import segment_of
from .geometric import geometric_sums, powers
from .kept import kept
from .shapes import Tensor

CHUNK = 32


class Tables(NamedTuple):
    """Weights by age, one row or one a head; the names are those of native/problem.h."""

    pair: Tensor
    near: Tensor
    fade: Tensor
    carry: Tensor
    scale: Tensor


def chunk_for(n: int, chunk_size: int | None, *, window: int = 0) -> int:
    """Tokens per chunk: a multiple of every vector width, and long enough to look back `window` tokens, if it may."""
    asked = min(n, CHUNK if window <= CHUNK else 2 * CHUNK) if chunk_size is None else min(n, chunk_size, 512)
    return (asked + 15) // 16 * 16


def linear_tables(n: int, chunk_size: int | None, dtype: torch.dtype) -> Tables:
    chunk = chunk_for(n, chunk_size)

    def make() -> Tables:
        ones, none = torch.ones(1, chunk, dtype=dtype, device="cpu"), torch.zeros(1, 0, dtype=dtype, device="cpu")
        return Tables(ones, none, none, none, torch.ones(1, dtype=dtype, device="cpu"))

    return kept(("linear", chunk, dtype), make)


def momentum_tables(beta: Tensor, gamma: Tensor, chunk: int, dtype: torch.dtype) -> Tables:
    """β and γ (1,) or (h,), float64: differentiable."""
    length = segment_of(chunk)
    sums = geometric_sums(beta, length)
    weighted = gamma[:, None] * sums
    tables = Tables(
        pair=weighted[:, 1 : chunk + 1],
        near=beta.new_zeros(len(beta), 0),
        fade=(beta - 1)[:, None] * sums,
        carry=beta[:, None] * weighted,
        scale=torch.ones_like(beta),
    )
    return Tables(*(table.to(dtype).contiguous() for table in tables))


def constant_tables(
    beta: float, gamma: float, n: int, chunk_size: int | None, dtype: torch.dtype, *, carries_state: bool
) -> tuple[Tables, int]:
    """The same for plain numbers, and how many lanes the state has: one where it is enough to look back."""
    window = _window(beta, dtype)
    chunk = chunk_for(n, chunk_size, window=0 if carries_state else window)
    looks_back = not carries_state and window <= chunk

    def make() -> Tables:
        exact_beta, exact_gamma = torch.tensor([[beta], [gamma]], dtype=torch.float64, device="cpu").unbind(0)
        tables = momentum_tables(exact_beta, exact_gamma, chunk, dtype)
        if not looks_back:
            return tables
        decay = powers(exact_beta, chunk + 2)
        return tables._replace(
            pair=(1 - decay[:, 1 : chunk + 1]).to(dtype),
            near=-decay[:, 2 : window + 2].to(dtype).contiguous(),
            scale=torch.tensor([gamma / (1 - beta)], dtype=dtype, device="cpu"),
        )

    return kept(("momentum", beta, gamma, chunk, dtype, looks_back), make), 1 if looks_back else 2


def _window(beta: float, dtype: torch.dtype) -> int:
    """How many tokens back β^distance still counts beside 1."""
    if beta == 0:
        return 0
    return max(0, math.ceil(math.log(torch.finfo(dtype).eps / 4) / math.log(beta)) - 2)
