"""Who takes part: our backends, PyTorch's softmax attention, and the peers that are installed.

A contestant is one small object. It says what it computes, and `load()` gives the function of (q, k, v) that is timed,
or raises `UnavailableError` with the reason.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F  # noqa: N812 (the field's name for it)

from ..attention import linear_attention, momentum_attention
from ..backend.choose import backends
from ..ops.shapes import Tensor
from . import peers
from .shapes import BenchError

Computes = Literal["linear", "momentum", "softmax"]
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]

BETA = 0.6
OURS = ("native", "chunked")


class UnavailableError(Exception):
    """Why a contestant cannot run here."""


@dataclass(frozen=True)
class Contestant:
    name: str
    computes: Computes
    build: Callable[[], Attend]
    package: str = ""  # of a peer, as pip knows it
    note: str = ""  # what was done so that it computes the same function
    double: bool = True  # does it compute in float64 where it is given float64?
    eps: float = 1e-6  # what it adds to the denominator
    states: int = 0  # how many arrays with one state (d, e) for every token it keeps

    def load(self) -> Attend:
        try:
            return self.build()
        except ImportError as error:
            raise UnavailableError(f"not installed ({error})") from None


def _our(backend: Any, computes: Computes) -> Attend:
    status = next(status for status in backends() if status.name == backend)
    if not status.available:
        raise UnavailableError(status.reason)
    if computes == "linear":
        return partial(linear_attention, backend=backend)
    return partial(momentum_attention, beta=BETA, backend=backend)


def our(backend: str, computes: Computes) -> Contestant:
    """One of our backends."""
    return Contestant(f"{backend} {computes}", computes, partial(_our, backend, computes))


OWN = tuple(our(backend, computes) for backend in OURS for computes in ("linear", "momentum"))
SDPA = Contestant("SDPA", "softmax", lambda: partial(F.scaled_dot_product_attention, is_causal=True))
PEERS = (
    Contestant(
        "fast-transformers",
        "linear",
        peers.fast_transformers,
        package="pytorch-fast-transformers",
        double=False,
    ),
    Contestant(
        "fla chunk",
        "linear",
        peers.fla_chunk,
        package="fla-core",
        note="pure-torch reference, fed φ(q) and φ(k), padded to a multiple of its chunk",
        eps=1e-10,
    ),
    Contestant(
        "fla recurrent",
        "linear",
        peers.fla_recurrent,
        package="fla-core",
        note="pure-torch reference, fed φ(q) and φ(k)",
        double=False,
        eps=1e-10,
        states=2,
    ),
    Contestant(
        "linear-attn-transformer",
        "linear",
        peers.linear_attention_transformer,
        package="linear-attention-transformer",
        note="fed log φ(q) and log φ(k), which its softmax and exp turn into φ up to a factor that cancels",
        eps=0.0,
        states=6,
    ),
)
EVERYONE = (*OWN, SDPA, *PEERS)


def find(name: str) -> Contestant:
    """By name."""
    for contestant in EVERYONE:
        if contestant.name == name:
            return contestant
    raise BenchError(f"unknown contestant {name!r} (known: {', '.join(one.name for one in EVERYONE)})")


def inputs(shape: tuple[int, int, int, int], dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    """q, k, v that need gradients, and the gradient of y; the same numbers every time."""
    generator = torch.Generator().manual_seed(0)
    q, k, v, grad = (torch.randn(shape, generator=generator, dtype=dtype) for _ in range(4))
    return q.requires_grad_(), k.requires_grad_(), v.requires_grad_(), grad
