"""Arguments of flash-linear-attention: what changes nothing is taken, what does not fit is refused by its name."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from momentum_transformer import fla
from tests.test_fla import B, H, K, T, V, inputs, made


def test_the_gates_weights_come_before_the_scale_where_that_package_has_them_there() -> None:
    x = {key: tensor.detach() for key, tensor in inputs().items()}
    a_log, bias = made(H, seed=21), made(H * K, seed=22)
    tensors = (x["q"], x["k"], x["v"], x["gk"], x["beta"])
    gate: dict[str, Any] = {"use_gate_in_kernel": True}
    expected, state = fla.chunk_kda(*tensors, 0.3, x["initial_state"], True, A_log=a_log, dt_bias=bias, **gate)
    o, after = fla.fused_recurrent_kda(*tensors, a_log, bias, 0.3, x["initial_state"], True, **gate)
    torch.testing.assert_close(o, expected)
    torch.testing.assert_close(after, state)


STEERING = ("chunk_size", "cu_seqlens_cpu")


@pytest.mark.parametrize(
    ("name", "arguments", "steering"),
    [
        ("gated_delta_rule", ("g", "beta"), (*STEERING, "chunk_indices")),
        ("kda", ("gk", "beta"), (*STEERING, "chunk_indices")),
        ("delta_rule", ("beta",), (*STEERING, "chunk_indices")),
        ("simple_gla", ("g",), STEERING),
        ("retention", (), STEERING),
    ],
)
def test_arguments_that_steer_kernels_change_nothing(
    name: str, arguments: tuple[str, ...], steering: tuple[str, ...]
) -> None:
    x = {key: tensor.detach() for key, tensor in inputs().items()}
    given = {"g" if argument == "gk" else argument: x[argument] for argument in arguments}
    options: dict[str, Any] = dict.fromkeys(steering, 64)
    more: dict[str, Any] = {"safe_gate": True, "disable_recompute": True} if name == "kda" else {}
    for function, extra in ((f"chunk_{name}", more), (f"fused_recurrent_{name}", {})):
        call = getattr(fla, function)
        o, _ = call(x["q"], x["k"], x["v"], **given, **options, **extra)
        assert torch.equal(o, call(x["q"], x["k"], x["v"], **given)[0])


def test_the_old_name_of_v_first_is_known() -> None:
    x = {key: tensor.detach() for key, tensor in inputs().items()}
    start = x["initial_state"].mT
    calls: list[tuple[Callable[..., Any], dict[str, Tensor]]] = [
        (fla.chunk_gated_delta_rule, {"g": x["g"], "beta": x["beta"]}),
        (fla.fused_recurrent_gated_delta_rule, {"g": x["g"], "beta": x["beta"]}),
        (fla.chunk_kda, {"g": x["gk"], "beta": x["beta"]}),
        (fla.fused_recurrent_kda, {"g": x["gk"], "beta": x["beta"]}),
        (fla.chunk_simple_gla, {"g": x["g"]}),
        (fla.fused_recurrent_simple_gla, {"g": x["g"]}),
        (fla.fused_recurrent_retention, {}),
    ]
    for function, rule in calls:
        given: dict[str, Any] = {**rule, "initial_state": start, "output_final_state": True}
        o, state = function(x["q"], x["k"], x["v"], **given, transpose_state_layout=True)
        expected, expected_state = function(x["q"], x["k"], x["v"], **given, state_v_first=True)
        assert torch.equal(o, expected)
        assert torch.equal(state, expected_state)
        assert state.shape == (B, H, V, K)
        with pytest.raises(ValueError, match="give one of state_v_first and its old name"):
            function(x["q"], x["k"], x["v"], **given, state_v_first=True, transpose_state_layout=True)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", ["simple_gla", "retention", "linear_attn"])
def test_reverse_is_the_same_from_the_other_end(name: str, packed: bool) -> None:
    x = {key: tensor.detach() for key, tensor in inputs(batch=1 if packed else B).items()}
    lengths = torch.tensor([0, 5, 20, T]) if packed else None
    start = made(3 if packed else B, H, K, V, seed=11)
    call = getattr(fla, f"fused_recurrent_{name}")
    rule = {"g": x["g"]} if name == "simple_gla" else {}
    options: dict[str, Any] = {"output_final_state": True}
    o, state = call(x["q"], x["k"], x["v"], **rule, reverse=True, cu_seqlens=lengths, initial_state=start, **options)
    ends = [0, 5, 20, T] if packed else [0, T]
    for number, (first, last) in enumerate(itertools.pairwise(ends)):
        rows = slice(number, number + 1) if packed else slice(None)
        turned = [x[key][:, first:last].flip(1) for key in "qkv"]
        part = {key: tensor[:, first:last].flip(1) for key, tensor in rule.items()}
        alone, after = call(*turned, **part, initial_state=start[rows], **options)
        torch.testing.assert_close(o[:, first:last], alone.flip(1), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(state[rows], after, rtol=1e-5, atol=1e-5)


def test_values_in_sixteen_bits_beside_wider_keys_are_taken_everywhere() -> None:
    x = {key: tensor.detach() for key, tensor in inputs().items()}
    half = x["v"].bfloat16()
    calls: list[Callable[[Tensor], Any]] = [
        lambda v: fla.chunk_gated_delta_rule(x["q"], x["k"], v, x["g"], x["beta"]),
        lambda v: fla.chunk_kda(x["q"], x["k"], v, x["gk"], x["beta"]),
        lambda v: fla.chunk_simple_gla(x["q"], x["k"], v),
        lambda v: fla.chunk_linear_attn(x["q"].abs(), x["k"].abs(), v),
    ]
    for call in calls:
        o, _ = call(half)
        assert o.dtype == torch.float32
        torch.testing.assert_close(o, call(half.float())[0])


GATED: dict[str, tuple[dict[str, Any], str]] = {
    "too few axes": ({"g": torch.zeros(B, T)}, r"g must be .* \(B, T, HV\) = \(2, 37, 2\), not .* \(2, 37\)"),
    "other heads": ({"g": torch.zeros(B, T, 3)}, r"g must be .*, not one of shape \(2, 37, 3\)"),
    "a number": ({"beta": 0.5}, r"beta must be a tensor \(B, T, HV\) = \(2, 37, 2\), not a float"),
    "weights of the gate": ({"use_gate_in_kernel": True, "A_log": torch.zeros(3)}, "A_log must be .* 2 numbers"),
    "bias of the gate": (
        {"use_gate_in_kernel": True, "A_log": torch.zeros(H), "dt_bias": torch.zeros(3)},
        "dt_bias must be a tensor of 2 numbers",
    ),
    "a state": ({"initial_state": torch.zeros(B, H, V, K)}, r"initial_state must be .* \(N, HV, K, V\)"),
    "keys": ({"k": torch.zeros(B, T, H, K + 1)}, r"k must be a tensor \(B, T, H, K\)"),
    "values": ({"v": torch.zeros(B, T, 3, V)}, "a multiple of the 2 heads"),
}


@pytest.mark.parametrize("name", GATED)
def test_shapes_are_refused_by_the_names_of_the_arguments(name: str) -> None:
    x, (change, words) = inputs(), GATED[name]
    given = {key: x[key] for key in ("q", "k", "v", "g", "beta")} | change
    if "v" in change:
        given |= {"g": torch.zeros(B, T, 3), "beta": torch.zeros(B, T, 3)}
    for function in (fla.chunk_gated_delta_rule, fla.fused_recurrent_gated_delta_rule):
        with pytest.raises(ValueError, match=words):
            function(**given)


def test_other_misfits_are_refused_by_the_names_of_the_arguments() -> None:
    x = inputs()
    qkv = (x["q"], x["k"], x["v"])
    calls: list[tuple[str, Callable[[], Any]]] = [
        ("gk must be a tensor", lambda: fla.fused_recurrent_gated_delta_rule(*qkv, gk=x["g"])),
        (
            "use_gate_in_kernel needs g",
            lambda: fla.fused_recurrent_gated_delta_rule(
                *qkv, gk=x["gk"], use_gate_in_kernel=True, A_log=torch.zeros(H)
            ),
        ),
        ("g must be a tensor", lambda: fla.chunk_kda(*qkv, x["g"], x["beta"])),
        (
            "safe_gate with use_gate_in_kernel needs lower_bound",
            lambda: fla.chunk_kda(
                *qkv, x["gk"], x["beta"], use_gate_in_kernel=True, A_log=torch.zeros(H), safe_gate=True
            ),
        ),
        ("g_gamma must be a tensor", lambda: fla.chunk_simple_gla(*qkv, g_gamma=-0.1)),
        ("beta must be a tensor", lambda: fla.chunk_delta_rule(*qkv, 0.5)),
        ("beta must be a number or a tensor", lambda: fla.chunk_momentum_attn(*qkv, torch.zeros(3))),
        (
            "initial_state must have 3 parts, .*, not 2 parts",
            lambda: fla.chunk_momentum_attn(*qkv, 0.5, initial_state=(x["initial_state"],) * 2),
        ),
        (
            "initial_state must have 2 parts",
            lambda: fla.chunk_linear_attn(*qkv, initial_state=(x["initial_state"],)),
        ),
    ]
    for words, call in calls:
        with pytest.raises(ValueError, match=words):
            call()
