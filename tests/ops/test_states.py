"""Carrying a state is as good as never having stopped; no function changes the state it was given."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from momentum_transformer import MomentumState, linear_attention, momentum_attention, softmax_attention
from momentum_transformer.ops.state import (
    CacheState,
    LinearState,
    detach_state,
    load_state,
    move_state,
    reorder_state,
    state_bytes,
    state_tensors,
)
from tests.family import masks

from .cases import N, assert_all_close, gradients, inputs


@settings(max_examples=25, deadline=None)
@given(cuts=st.lists(st.integers(0, N), max_size=4), mask=st.sampled_from(sorted(masks())), size=st.integers(1, 20))
def test_cutting_anywhere_and_carrying_the_state_changes_nothing(cuts: list[int], mask: str, size: int) -> None:
    x = inputs()
    key_mask = masks()[mask]
    whole, end = momentum_attention(
        x.q, x.k, x.v, beta=x.beta, gamma=x.gamma, state=x.state, key_mask=key_mask, return_state=True
    )
    borders = [0, *sorted(cuts), N]
    state, pieces = x.state, []
    for start, stop in itertools.pairwise(borders):
        y, state = momentum_attention(
            *(tensor[:, :, start:stop] for tensor in (x.q, x.k, x.v)),
            beta=x.beta,
            gamma=x.gamma,
            state=state,
            key_mask=None if key_mask is None else key_mask[:, start:stop],
            return_state=True,
            chunk_size=size,
        )
        pieces.append(y)
    joined = torch.cat(pieces, 2)
    assert_all_close(
        [joined, *state, *gradients([joined, *state], x)],
        [whole, *end, *gradients([whole, *end], x)],
        ["y", "m", "s", "z", *x._fields],
        1e-11,
    )


def test_token_by_token_equals_all_at_once() -> None:
    x = inputs()
    for attention, options in (
        (momentum_attention, {"beta": 0.7, "gamma": 0.8}),
        (linear_attention, {}),
        (softmax_attention, {}),
    ):
        whole = attention(x.q, x.k, x.v, **options)
        state = None
        for i in range(N):
            token = (tensor[:, :, i : i + 1] for tensor in (x.q, x.k, x.v))
            y, state = attention(*token, state=state, return_state=True, **options)
            assert_all_close([y], [whole[:, :, i : i + 1]], [f"y[{i}]"], 1e-12)


def test_the_given_state_is_never_changed() -> None:
    x = inputs(5)
    before = [tensor.clone() for tensor in x.state]
    momentum_attention(x.q, x.k, x.v, beta=0.5, state=x.state, return_state=True)
    momentum_attention(x.q[:, :, :1], x.k[:, :, :1], x.v[:, :, :1], beta=0.5, state=x.state, return_state=True)
    assert all(torch.equal(a, b) for a, b in zip(before, x.state, strict=True))


def test_a_state_fits_a_feature_map_that_widens() -> None:
    x = inputs()

    def both_signs(t: torch.Tensor) -> torch.Tensor:
        return torch.cat([t.relu(), (-t).relu()], -1)

    whole = momentum_attention(x.q, x.k, x.v, beta=0.5, feature_map=both_signs)
    _, state = momentum_attention(
        x.q[:, :, :9], x.k[:, :, :9], x.v[:, :, :9], beta=0.5, feature_map=both_signs, return_state=True
    )
    rest = momentum_attention(
        x.q[:, :, 9:], x.k[:, :, 9:], x.v[:, :, 9:], beta=0.5, feature_map=both_signs, state=state
    )
    assert_all_close([rest], [whole[:, :, 9:]], ["y"], 1e-12)


def test_an_empty_piece_returns_the_state_it_was_given() -> None:
    x = inputs(0)
    y, state = momentum_attention(x.q, x.k, x.v, beta=0.5, state=x.state, return_state=True)
    assert y.shape[2] == 0
    assert all(torch.equal(a, b) for a, b in zip(state, x.state, strict=True))
    assert all(a.data_ptr() != b.data_ptr() for a, b in zip(state, x.state, strict=True))


def test_states_detach_move_reorder_and_survive_a_file() -> None:
    x = inputs()
    state = (x.state, LinearState(x.s, x.z))
    assert not any(tensor.requires_grad for part in detach_state(state) for tensor in part)
    assert move_state(state, "meta")[0].s.device.type == "meta"
    picked = reorder_state(state, torch.tensor([1, 1, 0]))
    assert torch.equal(picked[0].m, x.m[[1, 1, 0]])
    assert torch.equal(picked[1].z, x.z[[1, 1, 0]])
    tensors = state_tensors(state)
    assert list(tensors) == ["0.m", "0.s", "0.z", "1.s", "1.z"]
    back = load_state(state, tensors)
    assert type(back[0]) is MomentumState
    assert all(torch.equal(a, b) for a, b in zip(back[0], state[0], strict=True))
    with pytest.raises(ValueError, match=r"missing \['0.m'\]"):
        load_state(state, {name: tensor for name, tensor in tensors.items() if name != "0.m"})


def test_softmax_cache_remembers_masks() -> None:
    x = inputs()
    mask = masks()["holes"]
    assert mask is not None
    whole = softmax_attention(x.q, x.k, x.v, key_mask=mask)
    first, state = softmax_attention(
        x.q[:, :, :20], x.k[:, :, :20], x.v[:, :, :20], key_mask=mask[:, :20], return_state=True
    )
    assert isinstance(state, CacheState)
    rest = softmax_attention(x.q[:, :, 20:], x.k[:, :, 20:], x.v[:, :, 20:], key_mask=mask[:, 20:], state=state)
    assert_all_close([torch.cat([first, rest], 2)], [whole], ["y"], 1e-12)


def test_the_bytes_of_a_state_are_those_of_its_tensors() -> None:
    linear = LinearState(torch.zeros(2, 3, 4, 5), torch.zeros(2, 3, 4, dtype=torch.float64))
    assert state_bytes(linear) == 2 * 3 * 4 * 5 * 4 + 2 * 3 * 4 * 8
    assert state_bytes((linear, (linear, None))) == 2 * state_bytes(linear)
