"""Mixers of the family: what was trained is what is sampled, masked tokens do not exist, documents do not mix."""

from typing import Any

import pytest
import torch
from torch import Tensor

from momentum_transformer import (
    DeltaAttention,
    Encoder,
    GatedDeltaAttention,
    GatedMomentumAttention,
    LinearAttention,
    LinformerAttention,
    MomentumAttention,
    MomentumDeltaAttention,
    PerformerAttention,
    ReformerAttention,
    RetentionAttention,
    ShortConvolution,
    SoftmaxAttention,
    WindowAttention,
    softmax_attention,
)
from momentum_transformer.layers import Attention, Tail
from momentum_transformer.layers.gates import Decay
from momentum_transformer.layers.parts import PartsState
from momentum_transformer.layers.situation import Mixer, Situation
from momentum_transformer.ops import detach_state, load_state, map_state, reorder_state, state_tensors
from momentum_transformer.ops.convolution import short_convolution
from tests.family import NARROW, mixers
from tests.ops.cases import assert_all_close

N, WIDTH, HEADS = 21, 16, 2
MIXERS: dict[str, Mixer] = {
    **mixers("retention", "delta", "gated delta", "momentum delta", "gated momentum", "window"),
    "delta, bare": DeltaAttention(convolution=None, tail=None),
    "delta, negative": DeltaAttention(negative=True),
    "gated delta, full gate": GatedDeltaAttention(tail=Tail(gate="full")),
    "gated momentum with parts": GatedMomentumAttention(convolution=ShortConvolution(3), tail=Tail()),
    "linear with a convolution": LinearAttention(convolution=ShortConvolution()),
    "momentum with a convolution": MomentumAttention(0.6, convolution=ShortConvolution(2, "none")),
    "softmax with a convolution": SoftmaxAttention(convolution=ShortConvolution()),
    "window of one": WindowAttention(1),
    "window with a convolution": WindowAttention(4, convolution=ShortConvolution()),
}
PACKED = [name for name in MIXERS if name.split()[0] not in ("linear", "momentum") or "delta" in name]
HOLES = torch.rand(3, N, generator=torch.Generator().manual_seed(0)) > 0.3
HOLES[2] = False


def encoder(mixer: str, *, causal: bool = True) -> Encoder:
    torch.manual_seed(0)
    return Encoder(2, WIDTH, HEADS, attention=MIXERS[mixer], causal=causal, norm="pre").double().eval()


def tokens(n: int = N) -> Tensor:
    return torch.randn(3, n, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("mixer", MIXERS)
def test_prefill_and_steps_give_what_the_whole_sequence_gives(mixer: str) -> None:
    model, x = encoder(mixer), tokens()
    whole = model(x)
    y, state = model(x[:, :9], return_state=True)
    pieces = [y]
    for i in range(9, 13):
        y, state = model.step(x[:, i], state)
        pieces.append(y[:, None])
    y, state = model(x[:, 13:13], state=state, return_state=True)
    pieces.append(model(x[:, 13:], state=state))
    assert_all_close([torch.cat(pieces, 1)], [whole], ["y"], 1e-11)


@pytest.mark.parametrize("mixer", MIXERS)
def test_later_tokens_change_nothing_before_them(mixer: str) -> None:
    model, x = encoder(mixer), tokens()
    changed = x.clone()
    changed[:, 12:] += 1
    assert_all_close([model(changed)[:, :12]], [model(x)[:, :12]], ["y"], 1e-12)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("mixer", MIXERS)
def test_masked_tokens_do_not_exist(mixer: str, causal: bool) -> None:
    model, x = encoder(mixer, causal=causal), tokens()
    dirty = torch.where(HOLES[..., None], x, torch.nan)
    y = model(dirty, key_mask=HOLES)
    for row in range(2):
        assert_all_close([y[row, HOLES[row]]], [model(x[row : row + 1, HOLES[row]])[0]], [f"row {row}"], 1e-11)


@pytest.mark.parametrize("mixer", MIXERS)
def test_a_state_after_masked_tokens_is_that_of_the_tokens_that_exist(mixer: str) -> None:
    model, x = encoder(mixer), tokens()
    _, state = model(torch.where(HOLES[..., None], x, torch.nan), key_mask=HOLES, return_state=True)
    y, _ = model.step(x[:, 0], state)
    for row in range(2):
        _, alone = model(x[row : row + 1, HOLES[row]], return_state=True)
        assert_all_close([y[row]], [model.step(x[row : row + 1, 0], alone)[0][0]], [f"row {row}"], 1e-11)
    assert_all_close([y[2]], [model.step(x[2:, 0])[0][0]], ["the empty row"], 1e-11)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("mixer", PACKED)
def test_packed_documents_give_what_each_gives_alone(mixer: str, causal: bool) -> None:
    model, x = encoder(mixer, causal=causal), tokens()
    reset = torch.zeros(3, N, dtype=torch.bool)
    reset[:, [0, 7, 8, 15]] = True
    y = model(x, reset=reset)
    for start, stop in ((0, 7), (7, 8), (8, 15), (15, N)):
        assert_all_close([y[:, start:stop]], [model(x[:, start:stop])], [f"{start} to {stop}"], 1e-11)


@pytest.mark.parametrize("mixer", PACKED)
def test_a_state_holds_nothing_of_documents_that_have_ended(mixer: str) -> None:
    model, x = encoder(mixer), tokens()
    reset = torch.zeros(3, N, dtype=torch.bool)
    reset[:, 19] = True
    _, state = model(x, reset=reset, return_state=True)
    _, alone = model(x[:, 19:], return_state=True)
    assert_all_close([model.step(x[:, 0], state)[0]], [model.step(x[:, 0], alone)[0]], ["y"], 1e-11)


@pytest.mark.parametrize("mixer", MIXERS)
def test_states_detach_reorder_and_survive_a_file(mixer: str) -> None:
    model, x = encoder(mixer), tokens()
    _, state = model(x, return_state=True)
    assert not any(tensor.requires_grad for tensor in state_tensors(detach_state(state)).values())
    order = torch.tensor([2, 0, 0])
    picked, _ = model.step(x[order, 0], reorder_state(state, order))
    assert_all_close([picked], [model.step(x[:, 0], state)[0][order]], ["y"], 1e-12)
    if "window" not in mixer and "softmax" not in mixer:  # whose caches grow
        back = load_state(model.initial_state(3), state_tensors(state))
        assert_all_close([model.step(x[:, 0], back)[0]], [model.step(x[:, 0], state)[0]], ["y"], 0.0)


@pytest.mark.parametrize("mixer", [name for name in PACKED if "window" not in name and "softmax" not in name])
def test_half_of_the_heads_read_backwards_without_causal_order(mixer: str) -> None:
    torch.manual_seed(0)
    layer = Attention(WIDTH, HEADS, MIXERS[mixer], causal=False).double()
    x, half = tokens().requires_grad_(), WIDTH // HEADS
    forwards = torch.autograd.grad(_before_out(layer, x)[:, 5, :half].sum(), x)[0]
    assert forwards[:, :5].any()
    assert not forwards[:, 6:].any()
    backwards = torch.autograd.grad(_before_out(layer, x)[:, 5, half:].sum(), x)[0]
    assert backwards[:, 6:].any()
    assert not backwards[:, :5].any()


def _before_out(layer: Attention, x: Tensor) -> Tensor:
    seen: list[Tensor] = []
    handle = layer.out.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    layer(x)
    handle.remove()
    return seen[0]


@pytest.mark.parametrize("mixer", MIXERS)
def test_every_parameter_gets_a_gradient(mixer: str) -> None:
    model, x = encoder(mixer).train(), tokens()
    model(x).square().sum().backward()
    missing = [name for name, p in model.named_parameters() if p.grad is None or not torch.isfinite(p.grad).all()]
    assert not missing


def test_gated_momentum_starts_as_the_papers_momentum() -> None:
    torch.manual_seed(0)
    gated = Attention(WIDTH, HEADS, GatedMomentumAttention(0.3, 0.7), causal=True).double()
    plain = Attention(WIDTH, HEADS, MomentumAttention(0.3, 0.7), causal=True).double()
    plain.load_state_dict({k: v for k, v in gated.state_dict().items() if "mixer" not in k})
    assert_all_close([gated(tokens())[0]], [plain(tokens())[0]], ["y"], 1e-6)


def test_decays_start_between_their_bounds() -> None:
    torch.manual_seed(0)
    gate = Decay(WIDTH, 200, steps=(0.001, 0.02))
    decay = gate(torch.zeros(1, 1, WIDTH)).flatten()
    assert decay.min() >= torch.exp(torch.tensor(-16 * 0.02)) - 1e-6
    assert decay.max() <= torch.exp(torch.tensor(-0.001)) + 1e-6


@pytest.mark.parametrize("window", [1, 3, 5, 200])
@pytest.mark.parametrize("n", [7, 300])
@pytest.mark.parametrize("causal", [True, False])
def test_a_window_is_softmax_over_the_last_tokens(causal: bool, n: int, window: int) -> None:
    q, k, v = (torch.randn(2, 2, n, 4, dtype=torch.float64) for _ in range(3))
    place = torch.arange(n)
    near = (place[:, None] - place).abs() < window
    near = near & (place[:, None] >= place) if causal else near
    scores = (q @ k.mT / 2).masked_fill(~near, -torch.inf)
    found = softmax_attention(q, k, v, causal=causal, window=window)
    assert_all_close([found], [scores.softmax(-1) @ v], ["y"], 1e-12)


def test_a_window_keeps_a_bounded_cache() -> None:
    model, x = encoder("window"), tokens()
    _, state = model(x, return_state=True)
    assert [layer.k.shape[2] for layer in state.layers] == [2, 2]
    _, state = model.step(x[:, 0], state)
    assert [layer.k.shape[2] for layer in state.layers] == [2, 2]


def test_the_convolution_is_pytorchs() -> None:
    x, weight = torch.randn(2, 9, 6, dtype=torch.float64), torch.randn(6, 4, dtype=torch.float64)
    y, past = short_convolution(x, weight)
    wanted = torch.nn.functional.conv1d(x.mT, weight[:, None], padding=3, groups=6)[..., :9].mT
    assert_all_close([y, past], [wanted, x[:, 6:]], ["y", "past"], 1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ShortConvolution(1), "taps must be 2 to 8, not 1"),
        (lambda: ShortConvolution("4"), "taps must be 2 to 8, not '4'"),
        (lambda: GatedDeltaAttention(steps=0.1), "steps must be two positive numbers"),
        (lambda: GatedDeltaAttention(steps=(0.1, float("inf"))), "each of steps must be positive and finite, not inf"),
        (lambda: DeltaAttention(tail=True).build(16, 2), "tail must be a Tail or None, not True"),
        (
            lambda: softmax_attention(*[torch.zeros(1, 1, 2, 2)] * 3, window=0),
            "window must be a positive whole number",
        ),
        (lambda: ShortConvolution(activation="tanh"), "activation must be one of 'silu', 'none', not 'tanh'"),
        (lambda: WindowAttention(0), "window must be a positive whole number of tokens, not 0"),
        (lambda: WindowAttention(True), "window must be a positive whole number of tokens, not True"),
        (lambda: GatedDeltaAttention(steps=(0.1, 0.01)), "steps must be two positive numbers, the smaller first"),
        (lambda: MomentumDeltaAttention(beta=0.0), "a learned beta cannot start at 0"),
        (lambda: GatedMomentumAttention(gamma=-1.0), "gamma must be positive and finite, not -1.0"),
        (lambda: Tail(gate="wide"), "gate must be one of 'none', 'low-rank', 'full', not 'wide'"),
    ],
)
def test_impossible_parts_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_what_a_mixer_cannot_do_is_one_clear_line() -> None:
    x = tokens()
    with pytest.raises(ValueError, match="heads must be even, not 1"):
        Attention(WIDTH, 1, DeltaAttention(convolution=None, tail=None), causal=False).double()(x)
    with pytest.raises(ValueError, match="cannot be cross attention"):
        Attention(WIDTH, HEADS, GatedDeltaAttention(), causal=False).double()(x, keys=x)
    with pytest.raises(ValueError, match="PerformerAttention knows no resets"):
        Encoder(1, WIDTH, HEADS, attention=PerformerAttention()).double()(x, reset=torch.zeros(3, N, dtype=torch.bool))
    _, linear = Encoder(1, WIDTH, HEADS, attention=LinearAttention()).double()(x, return_state=True)
    with pytest.raises(ValueError, match="state must be a PartsState, not LinearState"):
        Encoder(1, WIDTH, HEADS, attention=GatedDeltaAttention()).double()(x, state=linear)
    with pytest.raises(ValueError, match="state must be a RecurrentState, not LinearState"):
        Encoder(1, WIDTH, HEADS, attention=RetentionAttention()).double()(x, state=linear)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key_mask": torch.ones(3, 5).bool()}, r"key_mask must have shape \(3, 21\), not \(3, 5\)"),
        ({"key_mask": torch.ones(3, N)}, "key_mask must be a bool tensor"),
        ({"reset": torch.ones(1, N).bool()}, r"reset must have shape \(3, 21\), not \(1, 21\)"),
    ],
)
def test_a_convolution_checks_what_it_is_told(options: dict[str, Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encoder("gated delta")(tokens(), **options)


@pytest.mark.parametrize("kind", [PerformerAttention, ReformerAttention, lambda **o: LinformerAttention(N, **o)])
def test_mixers_that_estimate_softmax_take_a_convolution_too(kind: Any) -> None:
    torch.manual_seed(0)
    layer = Attention(WIDTH, HEADS, kind(convolution=ShortConvolution()), causal=False)
    layer(tokens().float())[0].square().sum().backward()
    learned = [p for name, p in layer.named_parameters() if "convolution" in name and p.requires_grad]
    assert len(learned) >= 2
    assert all(p.grad is not None and p.grad.any() for p in learned)


def test_a_convolution_refuses_the_state_of_another() -> None:
    x = tokens()
    for taps, other in ((2, 4), (4, 2)):
        one, two = (
            Encoder(1, WIDTH, HEADS, attention=LinearAttention(convolution=ShortConvolution(t))).double()
            for t in (taps, other)
        )
        _, state = one(x, return_state=True)
        with pytest.raises(ValueError, match=r"state\.convolution must have tensors of shape"):
            two(x, state=state)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_retention_keeps_its_decays_in_a_model_of_16_bits(dtype: torch.dtype) -> None:
    layer = Attention(64, 16, RetentionAttention(tail=None), causal=True).to(dtype)
    seen = layer.mixer.coefficients(Situation(True, x=torch.zeros(1, 2, 64, dtype=dtype)))["alpha"]  # type: ignore[attr-defined]
    assert seen.tolist() == [1 - 2.0 ** (-5 - head) for head in range(16)]


@pytest.mark.parametrize("mixer", ["gated delta", "momentum delta", "gated momentum with parts"])
def test_autocast_trains_without_a_warning(mixer: str) -> None:
    model = encoder(mixer).float().train()
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(tokens().float()).square().sum()
    loss.backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())


def test_a_state_with_parts_maps_like_any_other() -> None:
    _, state = encoder("gated delta")(tokens(), return_state=True)
    assert isinstance(state.layers[0], PartsState)
    doubled = map_state(lambda tensor: 2 * tensor, state)
    assert torch.equal(doubled.layers[0].mixer.s, 2 * state.layers[0].mixer.s)
