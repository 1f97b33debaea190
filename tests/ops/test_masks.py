"""A masked token does not exist."""

import pytest
import torch

from momentum_transformer import linear_attention, momentum_attention, softmax_attention
from tests.family import BACKENDS, masks

from .cases import B, assert_all_close, gradients, inputs

ATTENTIONS = {
    "momentum": lambda q, k, v, **options: momentum_attention(q, k, v, beta=0.8, gamma=0.7, **options),
    "linear": linear_attention,
    "softmax": softmax_attention,
}


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("mask", [name for name in masks() if name != "no mask"])
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_real_positions_get_what_they_get_without_the_masked_tokens(attention: str, mask: str, causal: bool) -> None:
    x, attend, key_mask = inputs(), ATTENTIONS[attention], masks()[mask]
    assert key_mask is not None
    y = attend(x.q, x.k, x.v, key_mask=key_mask, causal=causal)
    for sample in range(B):
        keep = key_mask[sample]
        alone = attend(*(tensor[sample : sample + 1, :, keep] for tensor in (x.q, x.k, x.v)), causal=causal)
        assert_all_close([y[sample, :, keep]], [alone[0]], ["y"], 1e-12)
        assert not y[sample, :, ~keep].any()


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("mask", [name for name in masks() if name != "no mask"])
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_garbage_under_the_mask_changes_neither_output_nor_gradient(attention: str, mask: str, causal: bool) -> None:
    x, attend, key_mask = inputs(), ATTENTIONS[attention], masks()[mask]
    assert key_mask is not None
    hole = ~key_mask[:, None, :, None]
    clean = attend(x.q, x.k, x.v, key_mask=key_mask, causal=causal)
    dirty = [tensor.detach().masked_fill(hole, float("nan")).requires_grad_() for tensor in (x.q, x.k, x.v)]
    y = attend(*dirty, key_mask=key_mask, causal=causal)
    found = gradients([y], dirty)
    assert_all_close([y, *found], [clean, *gradients([clean], [x.q, x.k, x.v])], ["y", "dq", "dk", "dv"], 1e-12)
    assert not any(g.masked_select(hole.expand_as(g)).any() for g in found)


def test_query_mask_speaks_for_queries_only() -> None:
    x = inputs()
    key_mask = masks()["holes"]
    everyone = torch.ones_like(key_mask)
    for attend in ATTENTIONS.values():
        y = attend(x.q, x.k, x.v, causal=False, key_mask=key_mask, query_mask=everyone)
        same = attend(x.q, x.k, x.v, causal=False, key_mask=key_mask)
        assert (y != 0).all()
        assert torch.equal(same, torch.where(key_mask[:, None, :, None], y, 0))


def test_masked_queries_are_zero_even_without_eps() -> None:
    x = inputs()
    y = momentum_attention(x.q, x.k, x.v, beta=0.5, key_mask=masks()["one sample empty"], eps=0.0)
    assert torch.isfinite(y).all()
    assert all(torch.isfinite(g).all() for g in gradients([y], [x.q, x.k, x.v]))


@pytest.mark.parametrize(
    "form", ["auto", *(name for name in BACKENDS if name != "native")]
)  # which refuses such masks
@pytest.mark.parametrize("attention", ["momentum", "linear"])
def test_a_query_without_a_key_sees_the_past_and_not_the_future(attention: str, form: str) -> None:
    """A token may ask without being known: what comes after it must not reach its output."""
    x, key_mask = inputs(), masks()["holes"]
    assert key_mask is not None
    everyone = torch.ones_like(key_mask)
    v = x.v.detach().clone()
    options = {"key_mask": key_mask, "query_mask": everyone, "backend": form}
    y = ATTENTIONS[attention](x.q, x.k, v, **options)
    v[:, :, 12:] += 100
    assert_all_close([ATTENTIONS[attention](x.q, x.k, v, **options)[:, :, :12]], [y[:, :, :12]], ["past"], 1e-12)
    for sample in range(B):  # and it sees every key before it
        i = int((~key_mask[sample]).nonzero()[-1])
        known = key_mask[sample, :i]
        keys, values = (t[sample : sample + 1, :, :i][:, :, known] for t in (x.k, x.v))
        query = x.q[sample : sample + 1, :, i : i + 1]
        wanted = ATTENTIONS[attention](query, keys, values, causal=False)
        found = ATTENTIONS[attention](x.q, x.k, x.v, **options)[sample : sample + 1, :, i : i + 1]
        assert_all_close([found], [wanted], ["query"], 1e-12)


def test_double_backward_works_where_nothing_that_is_asked_for_reaches_a_part_of_the_state() -> None:
    x, key_mask = inputs(), masks()["holes"]
    v = x.v.detach().requires_grad_()
    _, state = momentum_attention(x.q.detach(), x.k.detach(), v, beta=0.5, key_mask=key_mask, return_state=True)
    (first,) = torch.autograd.grad(state.s.square().sum() + state.z.sum(), v, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), v)
    assert second.any()
