"""One token of any member is one native step, and what was checked once is not checked again, nor checked less."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from momentum_transformer import RecurrentState, linear_attention, momentum_attention, recurrent_attention
from momentum_transformer.backend.cpu import repeated_step
from momentum_transformer.ops.feature_maps import l2_normalized
from tests.family import MEMBERS, inputs, needs_native

pytestmark = [needs_native, pytest.mark.kernels]


def token(given: dict[str, Any], i: int) -> dict[str, Any]:
    """Token i of every argument."""
    return {
        name: x[:, :, i : i + 1].contiguous() if isinstance(x, Tensor) and x.ndim > 1 else x
        for name, x in given.items()
    }


@pytest.mark.grid
@pytest.mark.parametrize("layout", ["contiguous", "transposed"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("member", MEMBERS)
def test_token_after_token_equals_the_recurrence(member: str, dtype: torch.dtype, layout: str) -> None:
    given = {name: x.detach() if isinstance(x, Tensor) else x for name, x in inputs(member, 12, dtype=dtype).items()}
    y, last = recurrent_attention(**given, return_state=True, backend="recurrent")
    _, state = recurrent_attention(**token(given, 0), return_state=True)
    tolerance = 1e-12 if dtype == torch.float64 else 2e-5
    for i in range(1, 12):
        one = token(given, i)
        if layout == "transposed":  # as heads of a projection are
            one["v"] = one["v"].transpose(1, 2).contiguous().transpose(1, 2)
        before = [None if x is None else x.clone() for x in state]
        found, after = recurrent_attention(**one, state=state, return_state=True)
        assert torch.allclose(found, y[:, :, i : i + 1], rtol=tolerance, atol=tolerance)
        assert all(x is None or torch.equal(x, old) for x, old in zip(state, before, strict=True))
        state = after
    for mine, theirs in zip(state, last, strict=True):
        assert (mine is None) == (theirs is None)
        assert mine is None or torch.allclose(mine, theirs, rtol=tolerance, atol=tolerance)


def gated_delta(**changes: Any) -> dict[str, Any]:
    torch.manual_seed(0)
    given: dict[str, Any] = {name: torch.randn(2, 3, 1, 8) for name in ("q", "k", "v")}
    given |= {"alpha": torch.rand(2, 3, 1), "eta": torch.rand(2, 3, 1), "delta": torch.rand(2, 3, 1)}
    return given | {"state": RecurrentState(torch.randn(2, 3, 8, 8)), "return_state": True} | changes


def test_the_second_call_is_prepared_and_gives_the_same() -> None:
    repeated_step._PREPARED.clear()
    first, _ = recurrent_attention(**gated_delta(feature_map=l2_normalized))
    assert [x is not None for x in repeated_step._PREPARED.values()] == [True]
    second, _ = recurrent_attention(**gated_delta(feature_map=l2_normalized))
    assert torch.equal(first, second)
    assert len(repeated_step._PREPARED) == 1


def strided(x: Tensor) -> Tensor:
    return x.repeat_interleave(2, -1)[..., ::2]


def expanded(x: Tensor) -> Tensor:
    return x[..., :1].expand(x.shape)


@pytest.mark.parametrize("layout", [strided, expanded])
@pytest.mark.parametrize("name", ["q", "k", "v", "erase"])
def test_elements_of_a_row_may_lie_apart_at_every_call(name: str, layout: Callable[[Tensor], Tensor]) -> None:
    given = gated_delta(erase=torch.randn(2, 3, 1, 8))
    given[name] = layout(given[name])
    assert given[name].stride(-1) != 1
    wanted, after = recurrent_attention(**given, backend="recurrent")
    for _ in range(3):
        found, state = recurrent_attention(**given)
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(state.s, after.s)


@pytest.mark.parametrize("layout", [strided, expanded])
@pytest.mark.parametrize("name", ["q", "k", "v"])
@pytest.mark.parametrize(
    "attend", [linear_attention, partial(momentum_attention, beta=0.6)], ids=["linear", "momentum"]
)
def test_elements_of_a_row_may_lie_apart_in_the_paper_s_members(
    attend: Callable[..., Any], name: str, layout: Callable[[Tensor], Tensor]
) -> None:
    given = {name: torch.randn(2, 3, 1, 8) for name in ("q", "k", "v")}
    given[name] = layout(given[name])
    _, state = attend(*(torch.randn(2, 3, 5, 8) for _ in range(3)), return_state=True)
    wanted, after = attend(**given, state=state, return_state=True, backend="recurrent")
    for _ in range(2):
        found, then = attend(**given, state=state, return_state=True)
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(then, after)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("alpha", 1.5, "alpha must be in"),
        ("alpha", -0.1, "alpha must be in"),
        ("eta", float("inf"), "eta must be finite"),
        ("delta", -float("inf"), "delta must be finite"),
    ],
)
@pytest.mark.parametrize("channels", [False, True])
def test_a_prepared_call_refuses_values_out_of_range(channels: bool, name: str, value: float, message: str) -> None:
    given = gated_delta()
    if channels:
        given["alpha"] = torch.rand(2, 3, 1, 8)
    recurrent_attention(**given)
    recurrent_attention(**given)
    given[name] = given[name].clone()
    given[name].view(-1)[-1] = value
    with pytest.raises(ValueError, match=message):
        recurrent_attention(**given)


def test_nan_passes_and_propagates_in_its_head() -> None:
    given = gated_delta()
    recurrent_attention(**given)
    given["alpha"][0, 1] = float("nan")
    y, _ = recurrent_attention(**given)
    assert y[0, 1].isnan().all()
    assert int(y.isnan().sum()) == 8


def test_a_prepared_call_does_not_hide_one_that_needs_gradients() -> None:
    given = gated_delta()
    recurrent_attention(**given)
    recurrent_attention(**given)
    given["k"] = given["k"].requires_grad_()
    y, _ = recurrent_attention(**given)
    assert torch.autograd.grad(y.sum(), given["k"])[0].abs().sum() > 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"state": RecurrentState(torch.randn(2, 3, 8, 7))}, "state.s must have shape"),
        ({"v": torch.randn(2, 3, 1, 8).double()}, "v must have the dtype of q"),
        ({"k": torch.randn(2, 3, 1, 9)}, "k must have shape"),
        ({"alpha": torch.rand(2, 3)}, "alpha must be a number or have shape"),
        ({"eta": 1j}, "eta must be a number"),
        ({"eps": -1.0}, "eps must not be negative"),
        ({"backend": ["native"]}, "backend must be one of"),
    ],
    ids=lambda x: x if isinstance(x, str) else "-".join(x),
)
def test_other_shapes_after_a_prepared_call_are_refused(changes: dict[str, Any], message: str) -> None:
    recurrent_attention(**gated_delta())
    recurrent_attention(**gated_delta())
    with pytest.raises(ValueError, match=message):
        recurrent_attention(**gated_delta(**changes))
