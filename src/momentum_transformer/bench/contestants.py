"""Who takes part: our backends, PyTorch's softmax attention, and the peers that are installed.

A contestant is one small object. It says what it computes, and `load()` gives the function that is timed, of q, k, v
and what a member of the family takes besides, or raises `UnavailableError` with the reason.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F  # noqa: N812 (the field's name for it)

from ..attention import linear_attention, momentum_attention
from ..backend.choose import backends
from ..ops.shapes import Tensor
from . import peers
from .measured_shapes import BenchError
from .members import EXTRAS, MemberName, attend_member, member_inputs

Computes = Literal["linear", "momentum", "softmax"] | MemberName
Attend = Callable[..., Any]

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
    adapt: Callable[..., tuple[Tensor, ...]] | None = None  # makes its own form of the tensors, before it is timed

    def load(self) -> Attend:
        try:
            return self.build()
        except ImportError as error:
            raise UnavailableError(f"not installed ({error})") from None


def _our(backend: Any, computes: Computes) -> Attend:
    status = next((status for status in backends() if status.name == backend), None)
    if status is not None and not status.available:
        raise UnavailableError(status.reason)
    if computes in EXTRAS:
        return partial(attend_member, computes=computes, backend=backend)
    if computes == "linear":
        return partial(linear_attention, backend=backend)
    return partial(momentum_attention, beta=BETA, backend=backend)


def our(backend: str, computes: Computes) -> Contestant:
    """One of our backends, or "auto": whichever serves the call."""
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

GATED_DELTA_PEER, KDA_PEER, TOKEN_PEER = "Transformers gated delta", "Transformers KDA", "Transformers one token"
FED = "pure-torch reference, fed log α and q√d, which it divides by √d"
FAMILY = (
    *(our("auto", computes) for computes in ("linear", "momentum", *get_args(MemberName))),
    Contestant(
        GATED_DELTA_PEER,
        "gated delta",
        peers.transformers_gated_delta,
        package="transformers",
        note=f"Qwen3-Next's chunks: {FED}",
        double=False,
        adapt=peers.for_transformers,
    ),
    Contestant(
        KDA_PEER,
        "KDA",
        peers.transformers_kda,
        package="transformers",
        note=f"Kimi Linear's chunks: {FED}",
        double=False,
        states=2,
        adapt=peers.for_transformers,
    ),
    Contestant(
        TOKEN_PEER,
        "one token",
        peers.transformers_one_token,
        package="transformers",
        note=f"Qwen3-Next's decoding: {FED}",
        double=False,
        adapt=peers.for_transformers,
    ),
)


def find(name: str) -> Contestant:
    """A contestant by its name."""
    known = (*EVERYONE, *FAMILY)
    for contestant in known:
        if contestant.name == name:
            return contestant
    raise BenchError(f"unknown contestant {name!r} (known: {', '.join(one.name for one in known)})")


def inputs(
    shape: tuple[int, int, int, int], dtype: torch.dtype = torch.float32, computes: str = "linear"
) -> tuple[Tensor, ...]:
    """q, k, v and what a member takes besides, which need gradients, and the gradient of y; the same every time."""
    generator = torch.Generator().manual_seed(0)
    q, k, v, grad = (torch.randn(shape, generator=generator, dtype=dtype) for _ in range(4))
    tensors = member_inputs([q, k, v], computes, generator) if computes in EXTRAS else [q, k, v]
    return *(x.requires_grad_() for x in tensors), grad


def adapted(contestant: Contestant, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The tensors of `inputs` in the contestant's own form, as leaves."""
    if contestant.adapt is None:
        return tuple(tensors)
    *leaves, grad = tensors
    with torch.no_grad():
        own = contestant.adapt(*leaves)
    return *(x.detach().requires_grad_() for x in own), grad
