"""Tensors in every layout that strides can give them, by fuzz: results are those of the PyTorch form."""

import os
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from momentum_transformer import RecurrentState, recurrent_attention
from tests.backend.test_native import assert_same, results
from tests.family import needs_native
from tests.ops.cases import assert_all_close
from tests.ops.test_family import everything

pytestmark = [needs_native, pytest.mark.kernels]
LAYOUTS = (
    *("plain", "by token", "transposed", "expanded", "one number a row", "every other number", "unaligned"),
    *("every other head", "overlapping"),
)
EXAMPLES = int(os.environ.get("MOMENTUM_FUZZ", "60"))


def tensor_in(
    layout: str, b: int, h: int, n: int, width: int, generator: torch.Generator, *, share: bool = False
) -> Tensor:
    """(b, h, n, width), small enough for keys of the delta rule; or every number a `share` of one."""

    def numbers(*shape: int) -> Tensor:
        if share:
            return torch.rand(shape, generator=generator, dtype=torch.float64)
        return torch.randn(shape, generator=generator, dtype=torch.float64) / width**0.5

    match layout:
        case "by token":  # as projections leave it
            return numbers(b, n, h, width).transpose(1, 2)
        case "transposed":
            return numbers(b, h, width, n).transpose(2, 3)
        case "expanded":
            return numbers(b, 1, n, width).expand(b, h, n, width)
        case "one number a row":
            return numbers(b, h, n, 1).expand(b, h, n, width)
        case "every other number":
            return numbers(b, h, n, 2 * width)[..., ::2]
        case "unaligned":
            return numbers(b, h, n, width + 3)[..., 1 : width + 1]
        case "overlapping":
            return numbers(b, h, n + width).unfold(2, width, 1)[:, :, :n]
        case "every other head":
            return numbers(b, 2 * h, n, width)[:, ::2]
    return numbers(b, h, n, width)


@st.composite
def calls(draw: st.DrawFn) -> dict[str, Any]:
    b, h, n, d, e = (draw(st.integers(*limits)) for limits in ((0, 3), (1, 3), (0, 300), (1, 40), (1, 40)))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    q, k, v = (tensor_in(draw(st.sampled_from(LAYOUTS)), b, h, n, width, generator) for width in (d, d, e))
    return {
        "q": q,
        "k": k,
        "v": v,
        "key_mask": torch.rand(b, n, generator=generator) > 0.3 if draw(st.booleans()) else None,
        "beta": draw(st.sampled_from([None, 0.0, 0.3, 0.6, 0.95])),
        "normalize": draw(st.booleans()),
        "return_state": draw(st.booleans()),
        "chunk_size": draw(st.sampled_from([None, 1, 16, 100])),
    }


@settings(max_examples=EXAMPLES, deadline=None)
@given(calls())
def test_any_layout_mask_and_option_gives_the_same(case: dict[str, Any]) -> None:
    q, k, v = (case.pop(name) for name in ("q", "k", "v"))
    assert_same(results(q, k, v, **case), results(q, k, v, **{**case, "backend": "chunked"}), torch.float64)


@st.composite
def members(draw: st.DrawFn) -> dict[str, Any]:
    b, h, d, e = (draw(st.integers(*limits)) for limits in ((1, 2), (1, 3), (1, 20), (1, 40)))
    n = draw(st.sampled_from([1, 16, 33, 70]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1000)))

    def rows(width: int, *, share: bool = False) -> Tensor:
        return tensor_in(draw(st.sampled_from(LAYOUTS)), b, h, n, width, generator, share=share)

    found: dict[str, Any] = {"q": rows(d), "k": rows(d), "v": rows(e)}
    for name in draw(st.sets(st.sampled_from(["alpha", "beta", "gamma", "eta", "delta", "erase"]))):
        if name == "erase":
            found[name] = rows(d)
        elif name == "alpha" and draw(st.booleans()):
            found[name] = rows(d, share=True)
        else:
            found[name] = rows(2, share=True)[..., 1]
    if n == 1 or draw(st.booleans()):
        m = torch.randn(b, h, d, e, generator=generator, dtype=torch.float64) if "beta" in found else None
        found["state"] = RecurrentState(torch.randn(b, h, e, d, generator=generator, dtype=torch.float64).mT, m)
    return found


@settings(max_examples=max(EXAMPLES // 2, 1), deadline=None)
@given(members())
def test_any_member_takes_any_layout(case: dict[str, Any]) -> None:
    state = case.pop("state", None)
    wanted, _ = recurrent_attention(**case, state=state, return_state=True, backend="recurrent")
    for _ in range(2):  # the second call of one token is a prepared one
        found, _ = recurrent_attention(**case, state=state, return_state=True)
        assert_all_close([found], [wanted], ["y"], 1e-11)
    differentiable = {name: x.detach().requires_grad_() for name, x in case.items()}
    made, exact = (everything(differentiable, backend=form) for form in ("native", "recurrent"))
    assert_all_close(list(made.values()), list(exact.values()), list(exact), 1e-11)
