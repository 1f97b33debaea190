"""torch.compile(fullgraph=True) gives the same numbers, forward and backward.

Run by `make test-all` without the shape checks of conftest.py, which no compiler can trace.
"""

import os
from collections.abc import Callable

import pytest
import torch

from momentum_transformer import (
    AdaptiveMomentumResidual,
    Encoder,
    MomentumAttention,
    linear_attention,
    momentum_attention,
)
from tests.ops.cases import Inputs, assert_all_close, gradients, inputs, masks

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # torch's compiler warns about its own insides
    pytest.mark.skipif(
        os.environ.get("MOMENTUM_CHECK_SHAPES", "1") == "1",
        reason="needs MOMENTUM_CHECK_SHAPES=0",
    ),
]


def attend(x: Inputs, key_mask: torch.Tensor | None) -> list[torch.Tensor]:
    y, state = momentum_attention(
        x.q,
        x.k,
        x.v,
        beta=x.beta,
        gamma=x.gamma,
        state=x.state,
        key_mask=key_mask,
        return_state=True,
        chunk_size=16,
    )
    return [y, *state]


@pytest.mark.parametrize("mask", ["no mask", "holes"])
def test_compiled_momentum_attention_is_the_same(mask: str) -> None:
    x, names = inputs(), ["y", "m", "s", "z", *Inputs._fields]
    compiled: Callable[..., list[torch.Tensor]] = torch.compile(attend, fullgraph=True)
    given, wanted = compiled(x, masks()[mask]), attend(x, masks()[mask])
    assert_all_close([*given, *gradients(given, x)], [*wanted, *gradients(wanted, x)], names, 1e-11)


@pytest.mark.parametrize("causal", [True, False])
def test_compiled_attention_without_state_is_the_same(causal: bool) -> None:
    x = inputs()

    def both(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> list[torch.Tensor]:
        return [linear_attention(q, k, v, causal=causal), momentum_attention(q, k, v, beta=0.6, causal=causal)]

    compiled: Callable[..., list[torch.Tensor]] = torch.compile(both, fullgraph=True)
    given, wanted = compiled(x.q, x.k, x.v), both(x.q, x.k, x.v)
    leaves = [x.q, x.k, x.v]
    assert_all_close(
        [*given, *gradients(given, leaves)],
        [*wanted, *gradients(wanted, leaves)],
        ["linear", "momentum", "dq", "dk", "dv"],
        1e-11,
    )


def test_compiled_encoder_is_the_same() -> None:
    torch.manual_seed(0)
    model = Encoder(
        2, 16, 2, attention=MomentumAttention(beta=0.6), residual=AdaptiveMomentumResidual(), norm="pre"
    ).double()
    x = torch.randn(2, 20, 16, dtype=torch.float64)
    compiled: Callable[..., torch.Tensor] = torch.compile(model, fullgraph=True)
    parameters = list(model.parameters())
    given, wanted = compiled(x), model(x)
    assert_all_close(
        [given, *gradients([given], parameters)],
        [wanted, *gradients([wanted], parameters)],
        ["y", *(name for name, _ in model.named_parameters())],
        1e-10,
    )
