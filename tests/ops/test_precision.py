"""Every β in [0, 1) and every dtype: stable sums, wide states, one rounding at the end."""

from fractions import Fraction
from typing import Any

import pytest
import torch

from momentum_transformer import MomentumState, linear_attention, momentum_attention, softmax_attention
from momentum_transformer.ops.geometric import geometric_sums, powers
from tests.family import BACKENDS, NARROW, masks

from .cases import Inputs, assert_all_close, attend, gradients, inputs

BETAS = [0.0, 1e-8, 0.1, 0.6, 0.9, 0.999, 0.999999]
EPSILON = {torch.float64: 2.3e-16, torch.float32: 1.2e-7, torch.bfloat16: 7.9e-3, torch.float16: 9.8e-4}


@pytest.mark.parametrize("beta", BETAS)
def test_geometric_sums_keep_all_their_digits(beta: float) -> None:
    exact, power, expected = Fraction(beta), Fraction(1), [Fraction(0)]
    for _ in range(300):
        expected.append(expected[-1] + power)
        power *= exact
    sums = geometric_sums(torch.tensor([beta], dtype=torch.float64), 300)[0]
    for given, wanted in zip(sums.tolist(), expected, strict=True):
        assert abs(given - float(wanted)) <= 4e-15 * float(wanted)


def test_powers_have_derivatives_at_zero() -> None:
    beta = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    value = powers(beta, 4)
    (first,) = torch.autograd.grad(value.sum(), beta, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), beta)
    assert value.tolist() == [[1, 0, 0, 0]]
    assert first.item() == 1
    assert second.item() == 2


@pytest.mark.parametrize("backend", BACKENDS[1:])
@pytest.mark.parametrize("beta", BETAS)
def test_any_beta_agrees_with_the_recurrence_over_a_thousand_tokens(beta: float, backend: str) -> None:
    x = inputs(1000)
    y, state = momentum_attention(x.q, x.k, x.v, beta=beta, backend=backend, return_state=True)
    wanted, end = momentum_attention(x.q, x.k, x.v, beta=beta, backend="recurrent", return_state=True)
    assert_all_close([y, *state], [wanted, *end], ["y", "m", "s", "z"], 1e-11)


@pytest.mark.parametrize("beta", BETAS)
def test_float32_keeps_float32_precision_at_any_beta(beta: float) -> None:
    x = inputs(1000, dtype=torch.float32)
    y = momentum_attention(x.q, x.k, x.v, beta=beta)
    wanted = momentum_attention(x.q.double(), x.k.double(), x.v.double(), beta=beta)
    assert_all_close([y], [wanted], ["y"], 2e-6)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("mask", ["no mask", "holes"])
@pytest.mark.parametrize("dtype", EPSILON, ids=str)
def test_each_dtype_rounds_only_its_inputs_and_outputs(dtype: torch.dtype, mask: str, causal: bool) -> None:
    x = inputs(200, dtype=dtype)
    wide = Inputs(*(tensor.detach().double().requires_grad_() for tensor in x))
    y = momentum_attention(x.q, x.k, x.v, beta=x.beta, gamma=x.gamma, causal=causal, key_mask=masks(200)[mask])
    wanted = momentum_attention(
        wide.q, wide.k, wide.v, beta=wide.beta, gamma=wide.gamma, causal=causal, key_mask=masks(200)[mask]
    )
    assert y.dtype == dtype
    accumulation = 16 * EPSILON[torch.promote_types(dtype, torch.float32)]
    assert_all_close([y], [wanted], ["y"], EPSILON[dtype] + accumulation)
    given = gradients([y], [x.q, x.k, x.v, x.beta, x.gamma])
    exact = gradients([wanted], [wide.q, wide.k, wide.v, wide.beta, wide.gamma])
    assert [g.dtype for g in given[:3]] == [dtype] * 3
    assert_all_close(given, exact, ["dq", "dk", "dv", "dbeta", "dgamma"], 60 * EPSILON[dtype])


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_states_are_float32_or_wider(dtype: torch.dtype) -> None:
    x = inputs(3, dtype=dtype)
    for attention, options in ((momentum_attention, {"beta": 0.5}), (linear_attention, {})):
        _, state = attention(x.q, x.k, x.v, return_state=True, **options)
        assert {tensor.dtype for tensor in state} == {torch.float32}
    wider = MomentumState(*(tensor.double() for tensor in x.state))
    y, state = momentum_attention(x.q, x.k, x.v, beta=0.5, state=wider, return_state=True)
    assert state.s.dtype == torch.float64
    assert y.dtype == dtype


def test_decoding_8192_tokens_in_bfloat16_matches_the_parallel_form() -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, 8192, 16, generator=generator).bfloat16() for _ in range(3))
    whole = momentum_attention(q, k, v, beta=0.9, gamma=0.5)
    state, tokens = None, []
    for i in range(8192):
        y, state = momentum_attention(
            q[:, :, i : i + 1],
            k[:, :, i : i + 1],
            v[:, :, i : i + 1],
            beta=0.9,
            gamma=0.5,
            state=state,
            return_state=True,
        )
        tokens.append(y)
    decoded = torch.cat(tokens, 2)
    assert decoded.dtype == torch.bfloat16
    assert_all_close([decoded], [whole], ["y"], EPSILON[torch.bfloat16])
    exact = momentum_attention(q.double(), k.double(), v.double(), beta=0.9, gamma=0.5)
    assert_all_close([whole, decoded], [exact, exact], ["parallel", "decoded"], EPSILON[torch.bfloat16])


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("form", [{"backend": "recurrent"}, {"chunk_size": 1}, {"chunk_size": 64}], ids=str)
def test_every_form_keeps_float32_precision_at_any_beta(form: dict[str, object], beta: float) -> None:
    """Near β = 1, a rounded β would lose the digits of 1 - β at every token."""
    x = inputs(2000, dtype=torch.float32)
    y = momentum_attention(x.q, x.k, x.v, beta=beta, **form)
    wanted = momentum_attention(x.q.double(), x.k.double(), x.v.double(), beta=beta)
    assert ((y - wanted).norm() / wanted.norm()).item() < 2e-6


@pytest.mark.grid
@pytest.mark.parametrize("with_state", [False, True], ids=["from nothing", "from a state"])
@pytest.mark.parametrize("mask", masks())
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float32, *NARROW], ids=str)
def test_every_form_agrees_in_every_dtype(dtype: torch.dtype, backend: str, mask: str, with_state: bool) -> None:
    x = inputs(dtype=dtype)
    wide = Inputs(*(tensor.detach().double().requires_grad_() for tensor in x))
    results = []
    for given, form in ((x, backend), (wide, "recurrent")):
        found = attend(given, with_state=with_state, key_mask=masks()[mask], backend=form)
        results.append([*found, *gradients(found, given)])
    assert_all_close(results[0], results[1], ["y", "m", "s", "z", *Inputs._fields], 60 * EPSILON[dtype])


def test_autocast_reaches_neither_states_nor_gradients() -> None:
    x = inputs(300, dtype=torch.float32)
    plain, end = momentum_attention(x.q, x.k, x.v, beta=0.9, return_state=True)
    wanted = gradients([plain, *end], [x.q, x.k, x.v])
    with torch.autocast("cpu", torch.bfloat16):
        y, state = momentum_attention(x.q, x.k, x.v, beta=0.9, return_state=True)
        given = gradients([y, *state], [x.q, x.k, x.v])
    assert all(torch.equal(a, b) for a, b in zip(given, wanted, strict=True))
    assert torch.equal(y, plain)
    assert all(torch.equal(a, b) for a, b in zip(state, end, strict=True))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("where", ["q", "k", "v"])
@pytest.mark.parametrize("form", [{"backend": "chunked", "chunk_size": 10}, {"backend": "native"}], ids=str)
def test_bad_numbers_propagate_and_the_past_stays_clean(where: str, value: float, form: dict[str, Any]) -> None:
    x = inputs(40)
    spoiled = {name: getattr(x, name).detach().clone() for name in ("q", "k", "v")}
    spoiled[where][0, 0, 20, 0] = value
    y = momentum_attention(**spoiled, beta=0.5, **form)
    clean = momentum_attention(x.q, x.k, x.v, beta=0.5, **form)
    assert not torch.isfinite(y[0, 0, 20]).all()
    assert torch.equal(y[:, :, :20], clean[:, :, :20])
    assert torch.equal(y[1], clean[1])


def test_softmax_agrees_with_its_formula() -> None:
    x = inputs()
    scores = x.q @ x.k.transpose(-1, -2) / x.q.shape[-1] ** 0.5
    causal = torch.ones(37, 37, dtype=torch.bool).tril()
    assert_all_close(
        [softmax_attention(x.q, x.k, x.v), softmax_attention(x.q, x.k, x.v, causal=False)],
        [scores.masked_fill(~causal, -torch.inf).softmax(-1) @ x.v, scores.softmax(-1) @ x.v],
        ["causal", "not causal"],
        1e-13,
    )
