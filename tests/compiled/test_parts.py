"""Convolution, norm and gate in compiled and exported graphs: native operators, at every length, with gradients."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.export import Dim, export

from momentum_transformer import Encoder, MomentumAttention, ShortConvolution
from momentum_transformer.layers import Tail
from momentum_transformer.layers.parts import with_parts
from momentum_transformer.layers.situation import Mix
from momentum_transformer.ops.feature_maps import l2_normalized
from tests.compiled.marks import COMPILED
from tests.compiled.recorder import Recorder, operators
from tests.family import needs_native
from tests.ops.cases import assert_all_close, gradients

pytestmark = [*COMPILED, needs_native]
FORWARD = {"momentum.short_convolution": 3, "momentum.row_norm": 3, "momentum.causal": 1}


@dataclass(frozen=True)
class MomentumWithParts:
    def build(self, width: int, heads: int) -> Mix:
        mix = MomentumAttention(0.6, feature_map=l2_normalized).build(width, heads)
        return with_parts(mix, width, heads, ShortConvolution(), Tail())


def encoder() -> Encoder:
    torch.manual_seed(0)
    return Encoder(1, 16, 2, attention=MomentumWithParts(), norm="pre").double()


def test_compiled_parts_are_native_operators_with_the_same_gradients() -> None:
    torch.compiler.reset()
    model, recorder = encoder(), Recorder()
    compiled: Callable[..., Tensor] = torch.compile(model, fullgraph=True, dynamic=True, backend=recorder)
    names, parameters = [name for name, _ in model.named_parameters()], list(model.parameters())
    graphs = []
    for tokens in (20, 33, 70):
        x, mask = torch.randn(2, tokens, 16, dtype=torch.float64), torch.rand(2, tokens) > 0.2
        given, wanted = compiled(x, key_mask=mask), model(x, key_mask=mask)
        found = [given, *gradients([given], parameters)]
        assert_all_close(found, [wanted, *gradients([wanted], parameters)], ["y", *names], 1e-11)
        graphs.append(recorder.graphs)
    assert graphs[0] == graphs[-1]
    assert set(recorder.names) == {*FORWARD, *(f"{name}_backward" for name in FORWARD)}


def test_exported_parts_run_at_every_length() -> None:
    model = encoder().eval()
    x = torch.randn(2, 20, 16, dtype=torch.float64)
    program = export(model, (x,), dynamic_shapes=({1: Dim("n", min=2, max=4096)},), strict=True)
    assert Counter(operators(program.graph)) == FORWARD
    exported = program.module()
    for tokens in (2, 20, 300):
        x = torch.randn(2, tokens, 16, dtype=torch.float64)
        torch.testing.assert_close(exported(x), model(x))
