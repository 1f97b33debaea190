"""torch.compile(fullgraph=True) gives the same numbers, forward and backward.

Run by `make test-all` without the shape checks of conftest.py, which no compiler can trace.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._pytree import tree_leaves

from momentum_transformer import (
    AdaptiveMomentumResidual,
    Encoder,
    MomentumAttention,
    linear_attention,
    momentum_attention,
    recurrent_attention,
)
from momentum_transformer.backend.cpu.causal_operator import SEGMENT
from tests import family
from tests.compiled.marks import COMPILED
from tests.compiled.recorder import Recorder
from tests.family import masks, needs_native
from tests.ops.cases import Inputs, assert_all_close, attend, gradients, inputs

pytestmark = COMPILED


@pytest.mark.parametrize("mask", ["no mask", "holes"])
def test_compiled_momentum_attention_is_the_same(mask: str) -> None:
    x, names = inputs(), ["y", "m", "s", "z", *Inputs._fields]
    compiled: Callable[..., list[torch.Tensor]] = torch.compile(attend, fullgraph=True)
    given, wanted = (function(x, key_mask=masks()[mask], chunk_size=16) for function in (compiled, attend))
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


def tensors(x: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(x) if isinstance(leaf, Tensor)]


def momentum(x: Inputs, mask: Tensor, **options: Any) -> Any:
    return momentum_attention(x.q, x.k, x.v, beta=0.6, **options)


def masked_momentum(x: Inputs, mask: Tensor, **options: Any) -> Any:
    return momentum_attention(x.q, x.k, x.v, beta=0.6, key_mask=mask, **options)


def learned_momentum(x: Inputs, mask: Tensor, **options: Any) -> Any:
    return momentum_attention(x.q, x.k, x.v, beta=x.beta, gamma=x.gamma, state=x.state, return_state=True, **options)


def linear(x: Inputs, mask: Tensor, **options: Any) -> Any:
    return linear_attention(x.q, x.k, x.v, key_mask=mask, state=x.state, return_state=True, **options)


def recurrent_linear(x: Inputs, mask: Tensor, **options: Any) -> Any:
    return recurrent_attention(x.q, x.k, x.v, return_state=True, **options)


def recurrent_momentum(x: Inputs, mask: Tensor, **options: Any) -> Any:
    return recurrent_attention(x.q, x.k, x.v, beta=x.beta, gamma=x.gamma, key_mask=mask, **options)


@needs_native
@pytest.mark.parametrize("backend", ["native", "auto"])
@pytest.mark.parametrize("tokens", [1, 37])
@pytest.mark.parametrize("with_gradients", [False, True], ids=["no gradients", "gradients"])
@pytest.mark.parametrize(
    "attend", [momentum, masked_momentum, learned_momentum, linear, recurrent_linear, recurrent_momentum]
)
def test_compiled_graphs_call_native_operators(
    attend: Callable[..., Any], with_gradients: bool, tokens: int, backend: str
) -> None:
    torch.compiler.reset()
    x, mask = inputs(tokens), masks(tokens)["holes"]
    recorder = Recorder()
    compiled = torch.compile(attend, fullgraph=True, backend=recorder)
    with torch.set_grad_enabled(with_gradients):
        found, wanted = (tensors(function(x, mask, backend=backend)) for function in (compiled, attend))
    if with_gradients:
        found, wanted = ([*y, *gradients(y, x)] for y in (found, wanted))
        assert recorder.names == ["momentum.causal", "momentum.causal_backward"]
    else:
        one_token = tokens == 1 and attend in (learned_momentum, recurrent_linear)
        assert recorder.names == ["momentum.step" if one_token else "momentum.causal"]
    assert_all_close(found, wanted, [str(i) for i in range(len(found))], 1e-11)


def momentum_both_ways(x: Inputs, mask: Tensor) -> Tensor:
    return momentum_attention(x.q, x.k, x.v, beta=0.6, causal=False)


def masked_momentum_both_ways(x: Inputs, mask: Tensor) -> Tensor:
    return momentum_attention(x.q, x.k, x.v, beta=0.6, causal=False, key_mask=mask)


def learned_momentum_both_ways(x: Inputs, mask: Tensor) -> Tensor:
    return momentum_attention(x.q, x.k, x.v, beta=x.beta, gamma=x.gamma, causal=False, key_mask=mask)


def linear_both_ways(x: Inputs, mask: Tensor) -> Tensor:
    return linear_attention(x.q, x.k[:, :, :20], x.v[:, :, :20], causal=False, query_mask=mask)


@needs_native
@pytest.mark.parametrize("with_gradients", [False, True], ids=["no gradients", "gradients"])
@pytest.mark.parametrize(
    "attend", [momentum_both_ways, masked_momentum_both_ways, learned_momentum_both_ways, linear_both_ways]
)
def test_compiled_graphs_without_causal_order_call_native_operators(
    attend: Callable[..., Tensor], with_gradients: bool
) -> None:
    torch.compiler.reset()
    x, mask = inputs(37), masks(37)["holes"]
    recorder = Recorder()
    compiled = torch.compile(attend, fullgraph=True, backend=recorder)
    with torch.set_grad_enabled(with_gradients):
        found, wanted = ([function(x, mask)] for function in (compiled, attend))
    expected = ["momentum.bidirectional"]
    if with_gradients:
        found, wanted = ([*y, *gradients(y, x)] for y in (found, wanted))
        expected.append("momentum.bidirectional_backward")
    assert recorder.names == expected
    assert_all_close(found, wanted, [str(i) for i in range(len(found))], 1e-11)


@needs_native
@pytest.mark.parametrize("mask", ["no mask", "holes"])
def test_one_compiled_graph_without_causal_order_serves_every_length(mask: str) -> None:
    torch.compiler.reset()
    recorder = Recorder()

    def attend(q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None) -> Tensor:
        y: Tensor = momentum_attention(q, k, v, beta=0.6, causal=False, key_mask=key_mask)
        return y

    compiled = torch.compile(attend, fullgraph=True, dynamic=True, backend=recorder)
    graphs = []
    for tokens in (100, 2, 1100):
        x = inputs(tokens)[:3]
        found, wanted = ([function(*x, masks(tokens)[mask])] for function in (compiled, attend))
        names = ["y", "dq", "dk", "dv"]
        assert_all_close([*found, *gradients(found, x)], [*wanted, *gradients(wanted, x)], names, 1e-11)
        graphs.append(recorder.graphs)
    assert graphs[0] == graphs[-1]


@needs_native
def test_a_compiled_encoder_decodes_by_native_operators() -> None:
    torch.manual_seed(0)
    model = Encoder(2, 16, 2, attention=MomentumAttention(0.6), residual=AdaptiveMomentumResidual()).eval()
    recorder = Recorder()
    compiled = torch.compile(model.step, fullgraph=True, backend=recorder)
    with torch.no_grad():
        found = wanted = model.initial_state(2)
        for x_t in torch.randn(3, 2, 16):
            (y, found), (z, wanted) = compiled(x_t, found), model.step(x_t, wanted)
            torch.testing.assert_close(y, z)
    assert set(recorder.names) == {"momentum.step"}


@needs_native
@pytest.mark.parametrize("mask", ["no mask", "holes"])
def test_one_compiled_graph_serves_every_length(mask: str) -> None:
    torch.compiler.reset()
    recorder = Recorder()

    def attend(q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None) -> list[Tensor]:
        return tensors(momentum_attention(q, k, v, beta=0.6, key_mask=key_mask, return_state=True))

    compiled = torch.compile(attend, fullgraph=True, dynamic=True, backend=recorder)
    graphs = []
    for tokens in (100, 2, SEGMENT, SEGMENT + 1, 700):
        x = inputs(tokens)[:3]
        found, wanted = (function(*x, masks(tokens)[mask]) for function in (compiled, attend))
        names = ["y", "m", "s", "z", "dq", "dk", "dv"]
        assert_all_close([*found, *gradients(found, x)], [*wanted, *gradients(wanted, x)], names, 1e-11)
        graphs.append(recorder.graphs)
    assert graphs[0] == graphs[-1]


@needs_native
@pytest.mark.parametrize("member", ["gated delta", "momentum delta", "everything"])
def test_compiled_graphs_contain_the_native_operators_of_every_member(member: str) -> None:
    torch.compiler.reset()
    given = family.inputs(member, 70)
    leaves = family.leaves(given)
    recorder = Recorder()
    compiled = torch.compile(recurrent_attention, fullgraph=True, backend=recorder)
    found, wanted = (tensors(function(**given, return_state=True)) for function in (compiled, recurrent_attention))
    assert_all_close(
        [*found, *gradients(found, list(leaves.values()))],
        [*wanted, *gradients(wanted, list(leaves.values()))],
        [*(str(i) for i in range(len(found))), *leaves],
        1e-11,
    )
    assert recorder.names == ["momentum.recurrent", "momentum.recurrent_backward"]


def test_compiled_gated_delta_is_the_same() -> None:
    given = family.inputs("gated delta", 7)
    leaves = list(family.leaves(given).values())
    compiled = torch.compile(recurrent_attention, fullgraph=True)
    found, wanted = compiled(**given), recurrent_attention(**given)
    torch.testing.assert_close(found, wanted)
    for a, b in zip(gradients([found], leaves), gradients([wanted], leaves), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("transform", ["vmap", "grad", "vmap of grad", "jvp"])
def test_transforms_inside_a_compiled_graph_are_seen(transform: str) -> None:
    torch.compiler.reset()
    x, tangent = (torch.randn(2, 3, 9, 5, dtype=torch.float64) for _ in range(2))

    def attend(x: Tensor) -> Tensor:
        return momentum_attention(x, x, x, beta=0.6)

    def loss(x: Tensor) -> Tensor:
        return attend(x).sin().sum()

    def transformed(x: Tensor, tangent: Tensor) -> Any:
        match transform:
            case "vmap":
                return torch.func.vmap(attend)(x[None])
            case "grad":
                return torch.func.grad(loss)(x)
            case "vmap of grad":
                return torch.func.vmap(torch.func.grad(loss))(x[None])
        return torch.func.jvp(attend, (x,), (tangent,))[1]

    compiled = torch.compile(transformed, fullgraph=True, backend=Recorder())
    torch.testing.assert_close(compiled(x, tangent), transformed(x, tangent))


@needs_native
def test_a_graph_compiled_without_tangents_does_not_lose_them_silently() -> None:
    torch.compiler.reset()
    x, tangent = torch.randn(2, 2, 3, 9, 5)
    compiled = torch.compile(lambda x: linear_attention(x, x, x), fullgraph=True, backend=Recorder())
    compiled(x)
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="no forward-mode derivatives"):
        compiled(forward_ad.make_dual(x, tangent))
