"""Every mixer that is decoded in place gives what `Encoder.step` gives, with its parts and without."""

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from momentum_transformer import (
    AdaptiveMomentumResidual,
    DeltaAttention,
    Encoder,
    GatedDeltaAttention,
    GatedMomentumAttention,
    LinearAttention,
    MomentumAttention,
    MomentumDeltaAttention,
    ReformerAttention,
    ShortConvolution,
    SoftmaxAttention,
    WindowAttention,
)
from momentum_transformer.decoding.decoder import Decoder, can_decode, refusal
from momentum_transformer.layers.gates import Gate
from momentum_transformer.layers.parts import Tail
from momentum_transformer.layers.situation import Mixer
from momentum_transformer.models.encoder import EncoderState
from momentum_transformer.ops.feature_maps import l2_normalized, length_scaled
from momentum_transformer.ops.state import map_state, state_tensors
from tests.family import RESIDUALS, mixers, needs_native

pytestmark = [needs_native, pytest.mark.kernels]

TAPS = ShortConvolution(taps=3, activation="none")
FAMILY: dict[str, Any] = {
    **mixers("retention", "gated delta", "momentum delta", "gated momentum"),
    "delta": DeltaAttention(negative=True),
}
MIXERS: dict[str, Mixer] = {
    **FAMILY,
    **{f"{name}, bare": replace(mixer, convolution=None, tail=None) for name, mixer in FAMILY.items()},
    **{
        f"{name}, all parts": replace(mixer, convolution=TAPS, tail=Tail(gate="full"))
        for name, mixer in FAMILY.items()
    },
    "gated delta, norm only": GatedDeltaAttention(tail=Tail(gate="none")),
    "gated delta, gate only": GatedDeltaAttention(convolution=None, tail=Tail(norm=False)),
    "gated momentum of unit features": GatedMomentumAttention(feature_map=l2_normalized, tail=Tail()),
    "softmax and convolution": SoftmaxAttention(convolution=ShortConvolution(taps=8)),
    "linear and convolution": LinearAttention(convolution=ShortConvolution(taps=2)),
    "momentum and convolution": MomentumAttention(0.6, 0.9, convolution=ShortConvolution()),
    **mixers("learned momentum", "window"),
    "linear, bare features": LinearAttention(feature_map=None, normalize=False),
    "window of one": WindowAttention(1),
    "wide window and convolution": WindowAttention(64, convolution=ShortConvolution()),
}
HYBRID = [GatedDeltaAttention(), SoftmaxAttention(), WindowAttention(4, convolution=TAPS), MomentumAttention(0.3)]


def made(attention: Any, *, depth: int = 2, width: int = 24, heads: int = 2, **options: Any) -> Encoder:
    """An encoder whose gates depend on x, as they do after training: some start as constants."""
    torch.manual_seed(0)
    encoder = Encoder(depth, width, heads, attention=attention, **options).double().eval()
    for module in encoder.modules():
        if isinstance(module, Gate):
            torch.nn.init.normal_(module.project.weight, std=width**-0.5)
    return encoder


def same(a: Tensor, b: Tensor, tolerance: float = 1e-12) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=tolerance)


def check_steps(encoder: Encoder, state: EncoderState, rows: int, steps: int, tolerance: float = 1e-12) -> None:
    decoder = Decoder(encoder, state, max_new_tokens=steps)
    for _ in range(steps):
        x = torch.randn(rows, encoder.width, dtype=next(encoder.parameters()).dtype)
        with torch.no_grad():
            y, state = encoder.step(x, state)
        assert same(decoder.step(x), y, tolerance)
    mine, theirs = state_tensors(decoder.state), state_tensors(state)
    assert mine.keys() == theirs.keys()
    assert all(
        mine[name].dtype == x.dtype and same(mine[name].double(), x.double(), tolerance) for name, x in theirs.items()
    )
    with torch.no_grad():  # and the encoder goes on from there
        x = torch.randn(rows, encoder.width, dtype=x.dtype)
        assert same(encoder.step(x, decoder.state)[0], encoder.step(x, state)[0], tolerance)


@pytest.mark.grid
@pytest.mark.parametrize("name", MIXERS)
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_every_mixer_equals_the_step_of_the_encoder_over_many_tokens(name: str, norm: Any) -> None:
    encoder = made(MIXERS[name], norm=norm)
    with torch.no_grad():
        _, state = encoder(torch.randn(3, 5, 24, dtype=torch.float64), return_state=True)
    check_steps(encoder, state, rows=3, steps=12)


@pytest.mark.parametrize("rule", ["plain", "momentum", "adaptive"])
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("rows", [1, 64])
def test_hybrids_equal_the_step_of_the_encoder(rows: int, norm: Any, rule: str) -> None:
    encoder = made(HYBRID, depth=4, width=42, heads=3, residual=RESIDUALS[rule], norm=norm, activation="gelu")
    with torch.no_grad():
        _, state = encoder(torch.randn(rows, 6, 42, dtype=torch.float64), return_state=True)
    check_steps(encoder, state, rows, steps=8)


@pytest.mark.parametrize("name", ["gated delta", "momentum delta", "gated momentum, all parts", "window"])
def test_float32_is_as_near_as_it_can_be(name: str) -> None:
    encoder = made(MIXERS[name], width=96, heads=3).float()
    check_steps(encoder, encoder.initial_state(5), rows=5, steps=20, tolerance=3e-5)


def test_every_instruction_set_decodes_every_mixer(instruction_set: str) -> None:
    assert instruction_set
    for mixer in MIXERS.values():
        encoder = made(mixer, depth=1, width=40)
        check_steps(encoder, encoder.initial_state(9), rows=9, steps=3)


@pytest.mark.parametrize("name", ["gated delta", "momentum delta", "wide window and convolution"])
@pytest.mark.parametrize("count", [1, 3, 7])
def test_a_row_does_not_depend_on_its_batch_nor_on_the_threads(count: int, name: str) -> None:
    encoder = made(MIXERS[name], width=96, heads=3).float()
    x, found = torch.randn(4, 13, 96), []
    before = torch.get_num_threads()
    for rows, threads in ((13, 1), (count, 3)):
        torch.set_num_threads(threads)
        try:
            decoder = Decoder(encoder, encoder.initial_state(rows))
        finally:
            torch.set_num_threads(before)
        found.append(torch.stack([decoder.step(token) for token in x[:, :rows]]))
    assert torch.equal(found[0][:, :count], found[1])


@pytest.mark.parametrize("name", ["gated delta", "momentum and convolution", "window", "wide window and convolution"])
def test_tokens_that_do_not_exist_are_not_seen(name: str) -> None:
    encoder = made(MIXERS[name])
    x = torch.randn(4, 5, 24, dtype=torch.float64)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 1, 0, 0, 1], [0, 0, 0, 0, 0]], dtype=torch.bool)
    x[~mask] = float("nan")
    with torch.no_grad():
        _, state = encoder(x, key_mask=mask, return_state=True)
        decoder = Decoder(encoder, state, max_new_tokens=6)
        for _ in range(6):
            token = torch.randn(4, 24, dtype=torch.float64)
            y, state = encoder.step(token, state)
            assert same(decoder.step(token), y)


def test_the_state_it_starts_from_stays_as_it_was() -> None:
    encoder = made(HYBRID, depth=4)
    with torch.no_grad():
        _, state = encoder(torch.randn(2, 7, 24, dtype=torch.float64), return_state=True)
    copy = map_state(Tensor.clone, state)
    decoder = Decoder(encoder, state, max_new_tokens=3)
    for _ in range(3):
        decoder.step(torch.randn(2, 24, dtype=torch.float64))
    pairs = itertools.zip_longest(state_tensors(copy).items(), state_tensors(state).items())
    assert all(name == other and torch.equal(a, b) for (name, a), (other, b) in pairs)


def test_nan_stays_in_its_row() -> None:
    encoder = made(MomentumDeltaAttention())
    decoder = Decoder(encoder, encoder.initial_state(2))
    x = torch.randn(2, 24, dtype=torch.float64)
    x[0] = float("nan")
    y = decoder.step(x)
    assert y[0].isnan().all()
    assert not y[1].isnan().any()


def test_what_it_cannot_decode_it_says_why() -> None:
    reasons: list[tuple[Encoder, str]] = [
        (Encoder(1, 16, 2, attention=ReformerAttention()).eval(), "has no native step"),
        (Encoder(1, 16, 2, attention=LinearAttention(feature_map=length_scaled)).eval(), "feature map length_scaled"),
        (Encoder(1, 16, 2, attention=MomentumAttention(weighting="terminal")).eval(), "no recurrent form"),
        (Encoder(1, 16, 2, residual=AdaptiveMomentumResidual(rule="released")).eval(), "rule 'released'"),
        (Encoder(1, 16, 2, attention=GatedDeltaAttention()), "training mode"),
        (Encoder(1, 16, 2, attention=GatedDeltaAttention(), causal=False).eval(), "causal order"),
        (Encoder(1, 16, 2).half().eval(), "not torch.float16"),
    ]
    for encoder, words in reasons:
        assert not can_decode(encoder)
        assert words in (refusal(encoder) or "")
    with pytest.raises(ValueError, match=r"cannot be decoded in place: it is in training mode; call encoder.eval\(\)"):
        Decoder(reasons[4][0], reasons[4][0].initial_state(1))


def test_states_that_do_not_fit_are_refused() -> None:
    encoder = made(GatedDeltaAttention())
    state = encoder.initial_state(2)
    bare = made(GatedDeltaAttention(convolution=None)).initial_state(2)
    with pytest.raises(ValueError, match="state must be a PartsState"):
        Decoder(encoder, bare)
    other = made(MomentumDeltaAttention()).initial_state(2)
    with pytest.raises(ValueError, match=r"state\.m must be None"):
        Decoder(encoder, other)
    with pytest.raises(
        ValueError, match=r"state.convolution must have tensors of shape \(2, 3, 24\), not \(2, 2, 24\)"
    ):
        Decoder(encoder, made(GatedDeltaAttention(convolution=TAPS)).initial_state(2))
    with pytest.raises(ValueError, match=r"x must be torch.float64 \(2, 24\)"):
        Decoder(encoder, state).step(torch.randn(3, 24, dtype=torch.float64))
