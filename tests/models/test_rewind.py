"""A state that went back is the state of the tokens that stayed, whatever the mixers remember."""

import pytest
import torch
from torch import Tensor

from momentum_transformer import (
    Encoder,
    GatedDeltaAttention,
    GatedMomentumAttention,
    Rewind,
    ShortConvolution,
    SoftmaxAttention,
    WindowAttention,
)
from momentum_transformer.layers import Mixer
from momentum_transformer.models import RewindState
from momentum_transformer.ops import reorder_state, state_tensors
from tests.family import mixers

MIXERS: dict[str, Mixer | list[Mixer]] = {
    **mixers("softmax", "window", "linear", "momentum", "retention", "delta", "gated delta", "momentum delta"),
    "softmax, convolution": SoftmaxAttention(convolution=ShortConvolution()),
    "gated momentum": GatedMomentumAttention(convolution=ShortConvolution()),
    "hybrid": [GatedDeltaAttention(), WindowAttention(4)],
}
KEEP = 4


def encoder(mixer: str) -> Encoder:
    torch.manual_seed(0)
    return Encoder(2, 16, 2, attention=MIXERS[mixer]).double().eval()


def tokens(n: int, seed: int = 1) -> Tensor:
    return torch.randn(2, n, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
@pytest.mark.parametrize("mixer", MIXERS)
def test_tokens_that_were_taken_back_leave_no_trace(mixer: str) -> None:
    model = encoder(mixer)
    rewind = Rewind(model, keep=KEEP)
    text, wrong = tokens(40), tokens(40, seed=2)
    expected = model(text)
    state: RewindState | None = None
    seen, outputs = 0, []
    for right, guesses in ((11, 3), (2, 2), (0, 4), (1, 0), (1, 0), (1, 3), (3, 1), (1, 0), (9, 4), (4, 0)):
        # some of the call is right, the last tokens are not
        x = torch.cat([text[:, seen : seen + right], wrong[:, :guesses]], 1)
        y, state = rewind(x, state)
        outputs.append(y[:, :right])
        state = rewind.back(state, guesses)
        seen += right
    torch.testing.assert_close(torch.cat(outputs, 1), expected[:, :seen], rtol=1e-12, atol=1e-12)
    y, _ = model(text[:, seen:], state=state.encoder if state else None, return_state=True)
    torch.testing.assert_close(y, expected[:, seen:], rtol=1e-12, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("mixer", ["momentum", "gated delta", "delta"])
def test_the_state_itself_is_that_of_the_tokens_that_stayed(mixer: str) -> None:
    model = encoder(mixer)
    rewind = Rewind(model, keep=KEEP)
    text = tokens(9)
    _, state = rewind(text)
    back = rewind.back(state, 3)
    _, expected = model(text[:, :6], return_state=True)
    for name, tensor in state_tensors(expected).items():
        torch.testing.assert_close(state_tensors(back.encoder)[name], tensor, rtol=1e-12, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("mixer", MIXERS)
def test_rows_may_go_back_by_different_counts(mixer: str) -> None:
    model = encoder(mixer)
    rewind = Rewind(model, keep=KEEP)
    text, more = tokens(10), tokens(5, seed=3)
    _, state = rewind(text)
    state = rewind.back(state, torch.tensor([1, 4]))
    y, state = rewind(more, state)
    state = rewind.back(state, torch.tensor([2, 0]))
    last, _ = rewind(tokens(1, seed=4), state)
    for row, (kept, kept_of_more) in enumerate(((9, 3), (6, 5))):
        line = torch.cat([text[:, :kept], more, tokens(1, seed=4)], 1)[row : row + 1]
        torch.testing.assert_close(y[row : row + 1], model(line[:, :-1])[:, kept:], rtol=1e-12, atol=1e-12)
        line = torch.cat([line[:, : kept + kept_of_more], line[:, -1:]], 1)
        torch.testing.assert_close(last[row : row + 1], model(line)[:, -1:], rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_masked_tokens_are_taken_back_like_others() -> None:
    model = encoder("hybrid")
    rewind = Rewind(model, keep=KEEP)
    x, more = tokens(9), tokens(2, seed=3)
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[0, :3] = mask[1, 6] = False
    _, state = rewind(x, key_mask=mask)
    y, _ = rewind(more, rewind.back(state, 3))
    row = torch.cat([x[:1, 3:6], more[:1]], 1)
    torch.testing.assert_close(y[:1], model(row)[:, 3:], rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_what_is_kept_does_not_grow() -> None:
    rewind = Rewind(encoder("gated delta"), keep=KEEP)
    state: RewindState | None = None
    for _ in range(30):
        _, state = rewind(tokens(1), state)
        assert len(state.marks) <= 2
        assert state.x.shape[1] <= 3 * KEEP
    assert state is not None
    for count in range(1, KEEP + 1):
        rewind.back(state, count)


@torch.no_grad()
def test_states_that_can_go_back_are_reordered_like_others() -> None:
    rewind = Rewind(encoder("hybrid"), keep=KEEP)
    x = tokens(7)
    _, state = rewind(x)
    swapped = rewind.back(reorder_state(state, torch.tensor([1, 0])), 2)
    expected = rewind.back(rewind(x.flip(0))[1], 2)
    for name, tensor in state_tensors(expected.encoder).items():
        torch.testing.assert_close(state_tensors(swapped.encoder)[name], tensor, rtol=1e-12, atol=1e-12)


def test_going_back_too_far_is_refused() -> None:
    rewind = Rewind(encoder("linear"), keep=KEEP)
    _, state = rewind(tokens(10))
    with pytest.raises(ValueError, match="can go back 0 to 4 tokens, not 5"):
        rewind.back(state, 5)
    with pytest.raises(ValueError, match="keep must be 1 token or more, not 0"):
        Rewind(encoder("linear"), keep=0)
    with pytest.raises(ValueError, match="causal=True"):
        Rewind(Encoder(1, 8, 2, causal=False), keep=2)


@pytest.mark.parametrize("mixer", ["momentum", "hybrid"])
def test_gradient_checkpointing_gives_the_same_gradients(mixer: str) -> None:
    model, x = encoder(mixer).train(), tokens(6)
    model(x).square().sum().backward()
    plain = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    model.zero_grad()
    model.gradient_checkpointing = True
    runs = 0
    hook = model.blocks[0].register_forward_pre_hook(lambda *_: count())

    def count() -> None:
        nonlocal runs
        runs += 1

    model(x).square().sum().backward()
    hook.remove()
    assert runs == 2
    for name, gradient in plain.items():
        torch.testing.assert_close(model.get_parameter(name).grad, gradient, rtol=1e-12, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("mixer", ["momentum", "hybrid"])
def test_each_row_takes_back_its_own_tokens_again_and_again(mixer: str) -> None:
    model = encoder(mixer)
    rewind = Rewind(model, keep=12)
    rows: list[list[Tensor]] = [[], []]
    state: RewindState | None = None
    counts = [(1, 4), (2, 2), (0, 3), (3, 0), (2, 2), (4, 4), (0, 4), (1, 0)]
    for number, (new, back) in enumerate(zip((10, 1, 5, 2, 4, 4, 4, 3), counts, strict=True)):
        x = tokens(new, seed=number)
        _, state = rewind(x, state)
        state = rewind.back(state, torch.tensor(back))
        for row, (line, count) in enumerate(zip(rows, back, strict=True)):
            line.extend(x[row].unbind(0))
            del line[len(line) - count :]
        last = tokens(1, seed=99)
        y, _ = rewind(last, state)
        for row, line in enumerate(rows):
            expected = model(torch.stack([*line, last[row, 0]])[None])[0, -1]
            torch.testing.assert_close(y[row, 0], expected, rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_one_number_is_the_same_count_for_rows_that_went_back_differently() -> None:
    model = encoder("gated delta")
    rewind = Rewind(model, keep=KEEP)
    x = tokens(10)
    state = rewind.back(rewind.back(rewind(x)[1], torch.tensor([0, 2])), 2)
    y, _ = rewind(tokens(1), state)
    for row, count in enumerate((8, 6)):
        line = torch.cat([x[row : row + 1, :count], tokens(1)[row : row + 1]], 1)
        torch.testing.assert_close(y[row, 0], model(line)[0, -1], rtol=1e-12, atol=1e-12)
    with pytest.raises(ValueError, match="can go back 0 to 0 tokens in all rows, not 1"):
        rewind.back(state, 1)


COUNTS = {
    "half": 1.5,
    "yes": True,
    "no axis": torch.tensor(1),
    "rows": torch.tensor([1, 1, 1]),
    "one row": torch.tensor([1]),
    "halves": torch.tensor([1.0, 2.0]),
}


@pytest.mark.parametrize("name", COUNTS)
def test_counts_that_are_none_are_refused(name: str) -> None:
    rewind = Rewind(encoder("linear"), keep=KEEP)
    _, state = rewind(tokens(10))
    with pytest.raises(ValueError, match=r"count must be a whole number of tokens, .* each of 2 rows, not"):
        rewind.back(state, COUNTS[name])


@torch.no_grad()
def test_going_back_to_the_beginning_is_the_state_before_the_first_token() -> None:
    model = encoder("hybrid")
    rewind = Rewind(model, keep=KEEP)
    state = rewind.back(rewind(tokens(3))[1], 3)
    torch.testing.assert_close(rewind(tokens(5, seed=3), state)[0], model(tokens(5, seed=3)), rtol=1e-12, atol=1e-12)
