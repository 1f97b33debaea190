"""What tests go through: members of the family, backends, shapes, masks, mixers, residual rules. One table for all.

A test that needs fewer of them chooses by name; what only one test goes through stands in that test.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from momentum_transformer import (
    AdaptiveMomentumResidual,
    DeltaAttention,
    GatedDeltaAttention,
    GatedMomentumAttention,
    LinearAttention,
    MomentumAttention,
    MomentumDeltaAttention,
    MomentumResidual,
    PlainResidual,
    RetentionAttention,
    SoftmaxAttention,
    WindowAttention,
)
from momentum_transformer.backend.cpu.native_backend import status
from momentum_transformer.layers import DifferenceResidual, LearnedMomentumAttention, Mixer, Residual

BACKENDS = ("recurrent", "chunked", "quadratic", "native")  # of momentum attention; a member has no quadratic form
needs_native = pytest.mark.skipif(status() is not None, reason=f"native kernels: {status()}")
# how far native results may be from exact ones, relative to the largest number of a tensor
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 3e-2, torch.float16: 4e-3}
NARROW = (torch.bfloat16, torch.float16)

B, H, N, D, E = 2, 4, 37, 5, 3
LENGTHS = (0, 1, 2, 7, 8, 9, 16, 17, 65, 129)  # around the borders of tiles and chunks

Make = Callable[..., Tensor]


def _shares(low: float, high: float) -> Callable[[torch.Generator, tuple[int, ...]], Tensor]:
    return lambda generator, shape: low + (high - low) * torch.rand(shape, generator=generator, dtype=torch.float64)


TOKEN, HEAD, CHANNEL = "a token", "a head", "a channel"
GATE, STRENGTH = _shares(0.3, 1.0), _shares(0.0, 1.0)

# name → {coefficient: a number, or (how many, values)}; `erase` and `unit` are explained in `inputs`
MEMBERS: dict[str, dict[str, Any]] = {
    "linear": {},
    "linear, normalised": {"normalize": True},
    "momentum": {"beta": 0.6, "gamma": 0.9, "normalize": True},
    "momentum, learned a head": {"beta": (HEAD, STRENGTH), "gamma": (HEAD, _shares(0.5, 2)), "normalize": True},
    "momentum near one": {"beta": 0.999, "gamma": 0.01},
    "momentum a token": {"beta": (TOKEN, STRENGTH), "gamma": (TOKEN, STRENGTH), "normalize": True},
    "retention": {"alpha": (HEAD, _shares(0.9, 1.0))},
    "scalar decay": {"alpha": (TOKEN, GATE), "eta": (TOKEN, STRENGTH)},
    "scalar decay with a step": {"alpha": (TOKEN, GATE), "gamma": (TOKEN, STRENGTH), "normalize": True},
    "strong decay": {"alpha": (TOKEN, _shares(0.0, 1e-6))},
    "channel decay": {"alpha": (CHANNEL, GATE)},
    "an erase without a delta": {"alpha": (TOKEN, GATE), "erase": "free"},
    "delta": {"eta": (TOKEN, STRENGTH), "delta": 1.0, "unit": True},
    "delta with negative eigenvalues": {"eta": (TOKEN, _shares(0.0, 2.0)), "delta": 1.0, "unit": True},
    "gated delta": {"alpha": (TOKEN, GATE), "eta": (TOKEN, STRENGTH), "delta": "alpha", "unit": True},
    "comba": {"alpha": (TOKEN, GATE), "eta": (TOKEN, STRENGTH), "delta": (HEAD, STRENGTH), "unit": True},
    "KDA": {"alpha": (CHANNEL, GATE), "eta": (TOKEN, STRENGTH), "delta": 1.0, "erase": "alpha", "unit": True},
    "another erase": {"eta": (TOKEN, STRENGTH), "delta": (TOKEN, STRENGTH), "erase": "free", "unit": True},
    "momentum delta": {
        "alpha": (TOKEN, GATE),
        "beta": (TOKEN, STRENGTH),
        "gamma": (TOKEN, STRENGTH),
        "eta": (TOKEN, STRENGTH),
        "delta": "alpha",
        "unit": True,
    },
    "momentum delta, constant": {"alpha": 0.95, "beta": 0.6, "gamma": 0.4, "eta": 0.7, "delta": 0.95, "unit": True},
    "Nesterov": {
        "beta": (TOKEN, STRENGTH),
        "gamma": (TOKEN, STRENGTH),
        "eta": (TOKEN, STRENGTH),
        "delta": 1.0,
        "lookahead": (TOKEN, STRENGTH),
        "unit": True,
    },
    "Nesterov without momentum": {"eta": 0.3, "delta": 1.0, "lookahead": 0.5, "unit": True},
    "everything": {
        "alpha": (CHANNEL, GATE),
        "beta": (TOKEN, STRENGTH),
        "gamma": (HEAD, STRENGTH),
        "eta": (TOKEN, STRENGTH),
        "delta": (TOKEN, STRENGTH),
        "lookahead": (HEAD, STRENGTH),
        "erase": "free",
        "normalize": True,
        "unit": True,
    },
}
SHAPES = {TOKEN: (B, H, -1), HEAD: (H,), CHANNEL: (B, H, -1, D)}


def inputs(member: str, n: int = N, *, dtype: torch.dtype = torch.float64, key_heads: int = H) -> dict[str, Any]:
    """Every argument of `recurrent_attention`; tensors need gradients. `unit`: keys have length one."""
    generator = torch.Generator().manual_seed(len(member))
    row = dict(MEMBERS[member])

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    unit, erase = row.pop("unit", False), row.pop("erase", None)
    q, k, v = normal(B, key_heads, n, D), normal(B, key_heads, n, D), normal(B, H, n, E)
    if row.get("normalize"):
        q, k = q.abs() + 0.1, k.abs() + 0.1
    if unit:
        k = k / k.norm(dim=-1, keepdim=True)
    given: dict[str, Any] = {"q": q, "k": k, "v": v}
    for name, choice in row.items():
        if isinstance(choice, tuple):
            size, values = choice
            given[name] = values(generator, tuple(n if x == -1 else x for x in SHAPES[size]))
        else:
            given[name] = choice
    if isinstance(given.get("delta"), str):
        given["delta"] = given["alpha"].clone()
    if erase == "alpha":
        given["erase"] = given["alpha"] * k.repeat_interleave(H // key_heads, 1)
    elif erase == "free":
        free = normal(B, key_heads, n, D)
        given["erase"] = free / free.norm(dim=-1, keepdim=True)
    return {name: x.to(dtype).detach().requires_grad_() if isinstance(x, Tensor) else x for name, x in given.items()}


def leaves(given: dict[str, Any]) -> dict[str, Tensor]:
    """What can be differentiated by."""
    return {name: x for name, x in given.items() if isinstance(x, Tensor) and x.requires_grad}


def masks(n: int = N) -> dict[str, Tensor | None]:
    """Which tokens exist, (B, n)."""
    place = torch.arange(n).expand(B, n)
    interior = torch.rand(B, n, generator=torch.Generator().manual_seed(7)) > 0.4
    return {
        "no mask": None,
        "right padding": place < torch.tensor([[n], [n - n // 3]]),
        "left padding": place >= torch.tensor([[n // 4], [0]]),
        "holes": interior,
        "one sample empty": torch.stack([interior[0], torch.zeros(n, dtype=torch.bool)]),
    }


RESET = torch.rand(B, N, generator=torch.Generator().manual_seed(4)) > 0.9
# the same as arguments, and documents that begin anywhere
HIDDEN: dict[str, dict[str, Tensor]] = {
    **{name: {} if mask is None else {"key_mask": mask} for name, mask in masks().items()},
    "resets": {"reset": RESET},
    "holes and resets": {
        "reset": RESET,
        "key_mask": torch.rand(B, N, generator=torch.Generator().manual_seed(5)) > 0.3,
    },
}

MIXERS: dict[str, Mixer] = {
    "softmax": SoftmaxAttention(),
    "window": WindowAttention(3),
    "linear": LinearAttention(),
    "momentum": MomentumAttention(beta=0.6, gamma=0.9),
    "learned momentum": LearnedMomentumAttention(MomentumAttention(beta=0.6, gamma=0.9)),
    "retention": RetentionAttention(),
    "delta": DeltaAttention(),
    "gated delta": GatedDeltaAttention(),
    "momentum delta": MomentumDeltaAttention(),
    "gated momentum": GatedMomentumAttention(),
}
RESIDUALS: dict[str, Residual] = {
    "plain": PlainResidual(),
    "momentum": MomentumResidual(beta=0.9, gamma=0.7),
    "difference": DifferenceResidual(beta=0.3),
    "adaptive": AdaptiveMomentumResidual(gamma=0.9),
}


def mixers(*names: str) -> dict[str, Mixer]:
    """Some of them."""
    return {name: MIXERS[name] for name in names}
