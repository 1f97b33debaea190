"""Members of the family as they are timed: which tensors each takes besides q, k and v, and the call that is ours."""

from math import prod
from typing import Any, Literal

import torch
import torch.nn.functional as F  # noqa: N812 (the field's name for it)

from ..attention import recurrent_attention
from ..ops.shapes import Tensor
from ..ops.state import RecurrentState

MemberName = Literal["gated delta", "gated delta a head", "momentum delta", "KDA", "one token"]

# what a member takes after q, k and v. "a head": the same at all tokens; "one token": of gated delta, with its state
EXTRAS: dict[str, tuple[str, ...]] = {
    "gated delta": ("alpha", "eta"),
    "gated delta a head": ("alpha", "eta"),
    "momentum delta": ("alpha", "eta", "beta", "gamma"),
    "KDA": ("alpha", "eta"),
    "one token": ("alpha", "eta", "state"),
}
LEAST = {"alpha": 0.9}  # of numbers below 1; the others may be anything above 0


def names(computes: str) -> tuple[str, ...]:
    """The names of the tensors that a contestant takes."""
    return ("q", "k", "v", *EXTRAS.get(computes, ()))


def extra_shape(name: str, computes: str, shape: tuple[int, int, int, int]) -> tuple[int, ...]:
    """The shape of one of EXTRAS, where q, k and v have this shape."""
    b, h, n, d = shape
    if name == "state":
        return b, h, d, d
    if computes == "gated delta a head":
        return (h,)
    return (b, h, n, d) if computes == "KDA" and name == "alpha" else (b, h, n)


def extra_bytes(computes: str, shape: tuple[int, int, int, int], size: int = 4) -> int:
    """Bytes of all that a member takes besides q, k and v."""
    return size * sum(prod(extra_shape(name, computes, shape)) for name in EXTRAS.get(computes, ()))


def member_inputs(qkv: list[Tensor], computes: str, generator: torch.Generator) -> list[Tensor]:
    """q, unit k, v, and what the member takes besides."""
    q, k, v = qkv
    b, h, n, d = q.shape
    found = [q, F.normalize(k, dim=-1), v]
    for name in EXTRAS[computes]:
        shape = extra_shape(name, computes, (b, h, n, d))
        if name == "state":
            found.append(torch.randn(shape, generator=generator, dtype=q.dtype))
        else:
            least = LEAST.get(name, 0.0)
            found.append(least + (1 - least) * torch.rand(shape, generator=generator, dtype=q.dtype))
    return found


def attend_member(q: Tensor, k: Tensor, v: Tensor, *extras: Tensor, computes: str, backend: Any) -> Any:
    """y, and for one token also s after it. The delta rule erases what the decayed state predicts."""
    given: dict[str, Any] = dict(zip(EXTRAS[computes], extras, strict=True))
    alpha = given["alpha"]
    if computes == "KDA":
        return recurrent_attention(q, k, v, **given, erase=alpha * k, delta=1.0, backend=backend)
    if computes == "one token":
        state = RecurrentState(given.pop("state"), None, None)
        y, after = recurrent_attention(q, k, v, **given, delta=alpha, state=state, return_state=True, backend=backend)
        return y, after.s
    return recurrent_attention(q, k, v, **given, delta=alpha, backend=backend)
