"""Inputs that the tests of the equations share."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from momentum_transformer import MomentumState, momentum_attention
from momentum_transformer.backend.choose import BACKEND_NAMES
from tests.family import BACKENDS

B, H, N, D, E = 2, 3, 37, 5, 4
BETA, GAMMA = [0.0, 0.6, 0.99], [0.5, 0.9, 2.0]

ADDED = {name: {"backend": name} for name in BACKEND_NAMES if name not in ("auto", *BACKENDS)}
FORMS: dict[str, dict[str, Any]] = {
    "quadratic": {"backend": "quadratic"},
    "chunks of 1": {"backend": "chunked", "chunk_size": 1},
    "chunks of 8": {"backend": "chunked", "chunk_size": 8},
    "chunks of 37, the length": {"backend": "chunked", "chunk_size": 37},
    "chunks of 64, above the length": {"backend": "chunked", "chunk_size": 64},
    "chunked": {"backend": "chunked"},
    "auto": {"backend": "auto"},
    "native": {"backend": "native"},
    "native, chunks of 16": {"backend": "native", "chunk_size": 16},
    **ADDED,
}
MEMBER_FORMS = ("chunked", "auto", *ADDED)  # of every member of the family


@contextmanager
def skipped_if_refused(form: str) -> Iterator[None]:
    """A backend that docs/extending.md has added may refuse what it does not know."""
    try:
        yield
    except ValueError as error:
        if form in ADDED and "cannot be used" in str(error):
            pytest.skip(str(error))
        raise


class Inputs(NamedTuple):
    """Everything momentum attention can be differentiated by."""

    q: Tensor
    k: Tensor
    v: Tensor
    beta: Tensor
    gamma: Tensor
    m: Tensor
    s: Tensor
    z: Tensor

    @property
    def state(self) -> MomentumState:
        return MomentumState(self.m, self.s, self.z)


def inputs(n: int = N, *, dtype: torch.dtype = torch.float64, seed: int = 0) -> Inputs:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()

    wide = torch.promote_types(dtype, torch.float32)
    return Inputs(
        q=normal(B, H, n, D),
        k=normal(B, H, n, D),
        v=normal(B, H, n, E),
        beta=torch.tensor(BETA, dtype=wide, requires_grad=True),
        gamma=torch.tensor(GAMMA, dtype=wide, requires_grad=True),
        m=normal(B, H, D, E).detach().to(wide).requires_grad_(),
        s=normal(B, H, D, E).detach().to(wide).requires_grad_(),
        z=normal(B, H, D).detach().abs().to(wide).requires_grad_(),
    )


def attend(x: Inputs, *, with_state: bool = True, **options: Any) -> list[Tensor]:
    """Momentum attention of all of them: y, and m, s and z after the last token."""
    state = x.state if with_state else None
    y, after = momentum_attention(x.q, x.k, x.v, beta=x.beta, gamma=x.gamma, state=state, return_state=True, **options)
    return [y, *after]


def gradients(outputs: Sequence[Tensor], wanted: Sequence[Tensor], *, seed: int = 1) -> list[Tensor]:
    """Gradients of a random linear function of all outputs, so that no error can cancel."""
    generator = torch.Generator().manual_seed(seed)
    loss = sum(
        (out.double() * torch.randn(out.shape, generator=generator, dtype=torch.float64)).sum() for out in outputs
    )
    assert isinstance(loss, Tensor)
    return list(torch.autograd.grad(loss, wanted, materialize_grads=True))


def assert_all_close(
    given: Sequence[Tensor], wanted: Sequence[Tensor], names: Sequence[str], tolerance: float
) -> None:
    """Each tensor within `tolerance` of the largest value it should have."""
    for a, b, name in zip(given, wanted, names, strict=True):
        assert a.shape == b.shape, name
        assert torch.isfinite(a).all(), f"{name} is not finite"
        worst = (a.double() - b.double()).abs().max().item() if a.numel() else 0.0
        scale = max(1.0, b.double().abs().max().item()) if b.numel() else 1.0
        assert worst <= tolerance * scale, f"{name}: {worst:.3g} off, of {scale:.3g}"
