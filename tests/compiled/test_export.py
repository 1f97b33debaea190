"""torch.export makes one graph with native operators for every length."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, export
from torch.utils._pytree import tree_leaves

from momentum_transformer import AdaptiveMomentumResidual, Encoder, MomentumAttention, momentum_attention
from momentum_transformer.backend.cpu.causal_operator import SEGMENT
from tests.compiled.marks import COMPILED
from tests.compiled.recorder import operators
from tests.family import needs_native

pytestmark = [*COMPILED, needs_native]
LENGTHS = (2, 3, 100, SEGMENT, SEGMENT + 1, 700)
N = Dim("n", min=2, max=4096)


class Attention(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Any:
        return momentum_attention(q, k, v, beta=0.6)


class MaskedAttention(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor) -> Any:
        return momentum_attention(q, k, v, beta=0.6, key_mask=key_mask, return_state=True)


class BothWays(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Any:
        return momentum_attention(q, k, v, beta=0.6, causal=False)


class MaskedBothWays(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor) -> Any:
        return momentum_attention(q, k, v, beta=0.6, causal=False, key_mask=key_mask)


def assert_same(found: Any, wanted: Any) -> None:
    for a, b in zip(tree_leaves(found), tree_leaves(wanted), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("strict", [False, True], ids=["traced by running", "traced by Dynamo"])
@pytest.mark.parametrize("traced_at", [20, SEGMENT + 44])
@pytest.mark.parametrize(
    "model",
    [Attention(), MaskedAttention(), BothWays(), MaskedBothWays()],
    ids=["attention", "mask and state", "both ways", "both ways with a mask"],
)
def test_exported_attention_runs_at_every_length(model: nn.Module, traced_at: int, strict: bool) -> None:
    masked = isinstance(model, MaskedAttention | MaskedBothWays)
    operator = "causal" if isinstance(model, Attention | MaskedAttention) else "bidirectional"

    def given(tokens: int) -> tuple[Tensor, ...]:
        qkv = tuple(torch.randn(2, 3, tokens, 5) for _ in range(3))
        return (*qkv, torch.rand(2, tokens) > 0.3) if masked else qkv

    shapes = ({2: N}, {2: N}, {2: N}, *([{1: N}] if masked else []))
    program = export(model, given(traced_at), dynamic_shapes=shapes, strict=strict)
    assert operators(program.graph) == [f"momentum.{operator}"]
    exported = program.module()
    for tokens in LENGTHS:
        x = given(tokens)
        assert_same(exported(*x), model(*x))


@pytest.mark.parametrize("strict", [False, True], ids=["traced by running", "traced by Dynamo"])
def test_an_exported_encoder_runs_at_every_length_and_learns(strict: bool) -> None:
    torch.manual_seed(0)
    model = Encoder(2, 16, 2, attention=MomentumAttention(0.6), residual=AdaptiveMomentumResidual(), norm="pre")
    program = export(model, (torch.randn(2, 20, 16),), dynamic_shapes=({0: Dim("b", min=2), 1: N},), strict=strict)
    assert operators(program.graph) == ["momentum.causal"] * 2
    exported = program.module()
    for tokens in LENGTHS:
        x = torch.randn(3, tokens, 16)
        found, wanted = exported(x), model(x)
        assert_same(found, wanted)
    names = [name for name, _ in model.named_parameters()]
    of_exported, of_model = (
        torch.autograd.grad(y.square().sum(), [dict(module.named_parameters())[name] for name in names])
        for y, module in ((found, exported), (wanted, model))
    )
    assert_same(of_exported, of_model)
