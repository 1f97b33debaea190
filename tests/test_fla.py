"""The functions named as in flash-linear-attention against that package's own PyTorch references."""

import importlib.util
import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (the field's name for it)
from torch import Tensor

from momentum_transformer import fla, momentum_attention, recurrent_attention

B, T, H, HV, K, V = 2, 37, 2, 4, 8, 5
LENGTHS = [0, 5, 5, 6, 37]  # of packed documents, one of them empty


def reference(path: str, name: str) -> Callable[..., Any]:
    """A function of an installed file; the package itself cannot be imported without a GPU."""
    specification = importlib.util.find_spec("fla")
    if specification is None or not specification.submodule_search_locations:
        pytest.skip("fla-core is not installed: pip install fla-core")
    file = Path(specification.submodule_search_locations[0]) / "ops" / path / "naive.py"
    module_specification = importlib.util.spec_from_file_location(f"reference_{path}", file)
    assert module_specification is not None
    assert module_specification.loader is not None
    module = importlib.util.module_from_spec(module_specification)
    module_specification.loader.exec_module(module)
    return getattr(module, name)


def made(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def inputs(heads: int = H, value_heads: int = H, batch: int = B) -> dict[str, Tensor]:
    """Leaves that need gradients."""
    raw = {
        "q": made(batch, T, heads, K, seed=1),
        "k": F.normalize(made(batch, T, heads, K, seed=2), dim=-1),
        "v": made(batch, T, value_heads, V, seed=3),
        "g": F.logsigmoid(made(batch, T, value_heads, seed=4)),
        "gk": F.logsigmoid(made(batch, T, value_heads, K, seed=5)),
        "beta": made(batch, T, value_heads, seed=6).sigmoid(),
        "initial_state": made(batch, value_heads, K, V, seed=7),
    }
    return {name: tensor.requires_grad_() for name, tensor in raw.items()}


def repeated(x: Tensor, value_heads: int) -> Tensor:
    return x.repeat_interleave(value_heads // x.shape[2], 2)


def gated_delta(x: dict[str, Tensor]) -> Any:
    naive = reference("gated_delta_rule", "naive_recurrent_gated_delta_rule")
    q, k = (repeated(x[name], x["v"].shape[2]) for name in "qk")
    return naive(q, k, x["v"], x["beta"], x["g"], initial_state=x["initial_state"], output_final_state=True)


def kda(x: dict[str, Tensor]) -> Any:
    naive = reference("kda", "naive_recurrent_kda")
    start = x["initial_state"]
    return naive(x["q"], x["k"], x["v"], x["gk"], x["beta"], initial_state=start, output_final_state=True)


def delta(x: dict[str, Tensor]) -> Any:
    naive = reference("delta_rule", "delta_rule_recurrence")
    o, state = naive(*(x[name].transpose(1, 2) for name in ("q", "k", "v", "beta")), x["initial_state"])
    return o.transpose(1, 2), state


def simple_gla(x: dict[str, Tensor]) -> Any:
    naive = reference("simple_gla", "naive_recurrent_simple_gla")
    return naive(x["q"], x["k"], x["v"], x["g"], initial_state=x["initial_state"])


def linear(x: dict[str, Tensor]) -> Any:
    naive = reference("linear_attn", "naive_recurrent_linear_attn")
    return naive(x["q"], x["k"], x["v"], initial_state=x["initial_state"], output_final_state=True)


def ours(function: Callable[..., Any], *names: str) -> Callable[[dict[str, Tensor]], Any]:
    def call(x: dict[str, Tensor]) -> Any:
        renamed = {"gk": "g"} if function in (fla.chunk_kda, fla.fused_recurrent_kda) else {}
        rule = {renamed.get(name, name): x[name] for name in names}
        return function(x["q"], x["k"], x["v"], **rule, initial_state=x["initial_state"], output_final_state=True)

    return call


def linear_without_denominator(*tensors: Tensor, **options: Any) -> Any:
    return fla.chunk_linear_attn(*tensors, **options, normalize=False)


# name → ours, theirs, heads of v
RULES: dict[str, tuple[Callable[..., Any], Callable[..., Any], int]] = {
    "gated delta": (ours(fla.chunk_gated_delta_rule, "g", "beta"), gated_delta, H),
    "gated delta, grouped": (ours(fla.chunk_gated_delta_rule, "g", "beta"), gated_delta, HV),
    "gated delta, by token": (ours(fla.fused_recurrent_gated_delta_rule, "g", "beta"), gated_delta, HV),
    "gated delta, by feature": (ours(fla.fused_recurrent_gated_delta_rule, "gk", "beta"), kda, HV),
    "KDA": (ours(fla.chunk_kda, "gk", "beta"), kda, H),
    "KDA, grouped": (ours(fla.fused_recurrent_kda, "gk", "beta"), kda, HV),
    "delta": (ours(fla.chunk_delta_rule, "beta"), delta, H),
    "simple GLA": (ours(fla.chunk_simple_gla, "g"), simple_gla, H),
    "linear": (ours(linear_without_denominator), linear, H),
    "linear, by token": (ours(fla.fused_recurrent_linear_attn), linear, H),
}


@pytest.mark.parametrize("name", RULES)
def test_outputs_states_and_gradients_are_those_of_the_reference(name: str) -> None:
    rule, theirs, value_heads = RULES[name]
    found = []
    for call in (rule, theirs):
        x = inputs(value_heads=value_heads)
        o, state = call(x)
        (o.square().sum() + (state * made(*state.shape, seed=9)).sum()).backward()
        found.append((o, state, {key: leaf.grad for key, leaf in x.items() if leaf.grad is not None}))
    (o, state, gradients), (o_theirs, state_theirs, gradients_theirs) = found
    torch.testing.assert_close(o, o_theirs, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(state, state_theirs, rtol=1e-5, atol=1e-5)
    assert gradients.keys() == gradients_theirs.keys()
    for key, gradient in gradients.items():
        torch.testing.assert_close(gradient, gradients_theirs[key], rtol=1e-4, atol=1e-4, msg=key)


def test_retention_is_that_of_the_reference() -> None:
    x = inputs()
    theirs = reference("retention", "naive_retention")(*(x[name].transpose(1, 2) for name in "qkv"))
    o, state = fla.chunk_retention(x["q"], x["k"], x["v"])
    torch.testing.assert_close(o, theirs.transpose(1, 2), rtol=1e-5, atol=1e-5)
    assert state is None


def test_normalised_linear_attention_carries_the_sum_of_its_keys_as_the_reference_does() -> None:
    naive = reference("linear_attn", "naive_recurrent_linear_attn")
    x = {name: tensor.abs() for name, tensor in inputs().items()}
    start = (x["initial_state"], made(B, 1, H, K, seed=8).abs())
    theirs, (s_theirs, z_theirs) = naive(x["q"], x["k"], x["v"], None, start, True, normalize=True)
    o, (s, z) = fla.chunk_linear_attn(x["q"], x["k"], x["v"], None, start, True)
    for mine, yours in ((o, theirs), (s, s_theirs), (z, z_theirs)):
        torch.testing.assert_close(mine, yours, rtol=1e-5, atol=1e-5)


def test_momentum_attention_is_the_papers_of_features() -> None:
    q, k, v = (made(B, T, H, width, seed=seed).abs().double() for width, seed in ((K, 1), (K, 2), (V, 3)))
    expected, state = momentum_attention(
        *(x.transpose(1, 2) for x in (q, k, v)),
        beta=0.6,
        gamma=0.9,
        feature_map=None,
        eps=1e-10 * math.sqrt(K),
        return_state=True,
    )
    o, (s, m, z) = fla.chunk_momentum_attn(q, k, v, 0.6, 0.9, output_final_state=True)
    torch.testing.assert_close(o, expected.transpose(1, 2), rtol=1e-12, atol=1e-12)
    for mine, theirs in ((s, state.s), (m, state.m), (z[:, 0], state.z)):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)
    half = T // 2
    first, between = fla.chunk_momentum_attn(q[:, :half], k[:, :half], v[:, :half], 0.6, 0.9, output_final_state=True)
    second, _ = fla.chunk_momentum_attn(q[:, half:], k[:, half:], v[:, half:], 0.6, 0.9, initial_state=between)
    torch.testing.assert_close(torch.cat([first, second], 1), o, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("with_states", [False, True])
@pytest.mark.parametrize("name", ["gated delta", "KDA", "simple GLA", "momentum"])
def test_packed_documents_equal_documents_one_by_one(name: str, with_states: bool) -> None:
    x = {key: tensor.detach().double() for key, tensor in inputs(batch=1).items()}
    documents = len(LENGTHS) - 1
    s = made(documents, H, K, V, seed=11).double() if with_states else None
    start: Any = s
    if name == "momentum" and s is not None:
        start = (s, 2 * s, made(documents, 1, H, K, seed=12).double().abs())

    def run(rows: slice, **options: Any) -> Any:
        q, k, v, g, gk, beta = (x[key][:, rows] for key in ("q", "k", "v", "g", "gk", "beta"))
        match name:
            case "gated delta":
                return fla.chunk_gated_delta_rule(q, k, v, g, beta, **options)
            case "KDA":
                return fla.chunk_kda(q, k, v, gk, beta, **options)
            case "simple GLA":
                return fla.chunk_simple_gla(q, k, v, g, **options)
        return fla.chunk_momentum_attn(q.abs(), k.abs(), v, beta, beta, **options)

    packed, states = run(
        slice(None), cu_seqlens=torch.tensor(LENGTHS), initial_state=start, output_final_state=with_states
    )
    for number, (first, last) in enumerate(itertools.pairwise(LENGTHS)):
        row = slice(number, number + 1)
        own = tuple(part[row] for part in start) if isinstance(start, tuple) else None if start is None else start[row]
        alone, state = run(slice(first, last), initial_state=own, output_final_state=True)
        torch.testing.assert_close(packed[:, first:last], alone, rtol=1e-12, atol=1e-12)
        if with_states:
            pairs = zip(states, state, strict=True) if isinstance(state, tuple) else ((states, state),)
            for all_of_them, one in pairs:
                torch.testing.assert_close(all_of_them[row], one, rtol=1e-12, atol=1e-12)


def test_gates_and_strengths_may_be_made_inside() -> None:
    x = {key: tensor.detach() for key, tensor in inputs(value_heads=HV).items()}
    a_log, bias, logits = made(HV, seed=21), made(HV, seed=22), made(B, T, HV, seed=23)
    g = -a_log.exp() * F.softplus(x["g"] + bias)
    expected, _ = fla.chunk_gated_delta_rule(
        F.normalize(x["q"], dim=-1, eps=1e-3), x["k"], x["v"], g, 2 * logits.sigmoid()
    )
    o, _ = fla.chunk_gated_delta_rule(
        x["q"],
        x["k"],
        x["v"],
        x["g"],
        logits,
        use_gate_in_kernel=True,
        A_log=a_log,
        dt_bias=bias,
        use_beta_sigmoid_in_kernel=True,
        allow_neg_eigval=True,
        use_qk_l2norm_in_kernel=True,
    )
    torch.testing.assert_close(o, expected, rtol=1e-4, atol=1e-4)
    channel_bias = made(HV * K, seed=24)
    gk = -5 * torch.sigmoid(a_log.exp()[:, None] * (x["gk"] + channel_bias.view(HV, K)))
    expected, _ = fla.chunk_kda(x["q"], x["k"], x["v"], gk, x["beta"])
    o, _ = fla.chunk_kda(
        x["q"],
        x["k"],
        x["v"],
        x["gk"],
        x["beta"],
        use_gate_in_kernel=True,
        A_log=a_log,
        dt_bias=channel_bias,
        lower_bound=-5.0,
    )
    torch.testing.assert_close(o, expected, rtol=1e-5, atol=1e-5)


def test_states_may_have_the_width_of_v_first() -> None:
    x = {key: tensor.detach() for key, tensor in inputs().items()}
    arguments = (x["q"], x["k"], x["v"], x["g"], x["beta"], None)
    o, state = fla.chunk_gated_delta_rule(*arguments, x["initial_state"], True)
    turned, turned_state = fla.chunk_gated_delta_rule(*arguments, x["initial_state"].mT, True, state_v_first=True)
    assert state is not None
    assert turned_state is not None
    torch.testing.assert_close(turned, o)
    torch.testing.assert_close(turned_state.mT, state)


def test_sixteen_bits_come_back_as_sixteen_bits_with_states_in_float32() -> None:
    x = {key: tensor.detach().bfloat16() for key, tensor in inputs().items()}
    rules: list[tuple[Callable[..., Any], Tensor]] = [(fla.chunk_gated_delta_rule, x["g"]), (fla.chunk_kda, x["gk"])]
    for function, g in rules:
        o, state = function(x["q"], x["k"], x["v"], g, x["beta"], None, x["initial_state"], True)
        wide, _ = function(*(t.float() for t in (x["q"], x["k"], x["v"], g, x["beta"])), None, x["initial_state"])
        assert o.dtype == torch.bfloat16
        assert state is not None
        assert state.dtype == torch.float32
        torch.testing.assert_close(o.float(), wide, rtol=2e-2, atol=2e-2)


def test_the_scale_is_one_over_the_root_of_the_width_unless_given() -> None:
    x = {key: tensor.detach() for key, tensor in inputs().items()}
    o, _ = fla.chunk_simple_gla(x["q"], x["k"], x["v"], x["g"])
    doubled, _ = fla.chunk_simple_gla(x["q"], x["k"], x["v"], x["g"], scale=2.0)
    plain = recurrent_attention(
        *(x[name].transpose(1, 2) for name in "qkv"), alpha=x["g"].exp().transpose(1, 2).contiguous()
    ).transpose(1, 2)
    torch.testing.assert_close(o, plain * K**-0.5)
    torch.testing.assert_close(doubled, plain * 2)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "heads first": ({"head_first": True}, "head_first is not taken"),
    "two decays": ({"g_gamma": torch.zeros(H)}, "one of g and g_gamma"),
    "a packed batch": ({"cu_seqlens": torch.tensor([0, T])}, "a batch of 2"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_served_is_refused_in_one_line(name: str) -> None:
    x = inputs()
    options, words = BAD[name]
    with pytest.raises(ValueError, match=words):
        fla.chunk_simple_gla(x["q"], x["k"], x["v"], x["g"], **options)


def test_impossible_gates_are_refused() -> None:
    x = inputs()
    with pytest.raises(ValueError, match="gv must be None"):
        fla.fused_recurrent_gated_delta_rule(x["q"], x["k"], x["v"], x["g"], gv=x["v"])
    with pytest.raises(ValueError, match="needs A_log"):
        fla.chunk_gated_delta_rule(x["q"], x["k"], x["v"], x["g"], x["beta"], use_gate_in_kernel=True)
    with pytest.raises(ValueError, match="needs use_beta_sigmoid_in_kernel"):
        fla.chunk_gated_delta_rule(x["q"], x["k"], x["v"], x["g"], x["beta"], allow_neg_eigval=True)
    with pytest.raises(ValueError, match="4 rows, one a document, not 2"):
        fla.chunk_simple_gla(
            x["q"][:1],
            x["k"][:1],
            x["v"][:1],
            cu_seqlens=torch.tensor(LENGTHS),
            initial_state=x["initial_state"],
        )
