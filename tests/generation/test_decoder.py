"""Decoding on buffers gives what `Encoder.step` gives, token after token."""

import pytest
import torch

from momentum_transformer import (
    AdaptiveMomentumResidual,
    Encoder,
    LinearAttention,
    MomentumAttention,
    MomentumResidual,
    PlainResidual,
    SoftmaxAttention,
)
from momentum_transformer.generation.decoder import Decoder, can_decode
from momentum_transformer.ops.native import status

needs_native = pytest.mark.skipif(status() is not None, reason=f"native kernels: {status()}")
RULES = {
    "plain": PlainResidual(),
    "momentum": MomentumResidual(0.9, 0.7),
    "adaptive": AdaptiveMomentumResidual(0.8),
    "adaptive, bounded": AdaptiveMomentumResidual(1.0, 0.5),
}
MIXERS = {"linear": LinearAttention(), "momentum": MomentumAttention(0.6, 0.9), "no momentum": MomentumAttention(0.0)}


@needs_native
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("mixer", MIXERS)
@pytest.mark.parametrize("width", [24, 40])
def test_decoding_equals_the_step_of_the_encoder(width: int, mixer: str, rule: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    attention, residual = MIXERS[mixer], RULES[rule]
    assert isinstance(attention, LinearAttention | MomentumAttention)
    encoder = Encoder(3, width, 2, attention=attention, residual=residual, activation="gelu").to(dtype).eval()
    _, state = encoder(torch.randn(5, 7, width, dtype=dtype), return_state=True)
    decoder = Decoder(encoder, state)
    for _ in range(6):
        x = torch.randn(5, width, dtype=dtype)
        y, state = encoder.step(x, state)
        with torch.inference_mode():
            found = decoder.step(x)
        assert torch.allclose(found, y, rtol=0, atol=1e-12 if dtype == torch.float64 else 2e-5)
    for mine, theirs in zip(decoder.state.layers, state.layers, strict=True):
        assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(mine, theirs, strict=True))


@needs_native
def test_the_state_it_starts_from_stays_as_it_was() -> None:
    encoder = Encoder(1, 16, 2).eval()
    state = encoder.initial_state(2)
    with torch.inference_mode():
        Decoder(encoder, state).step(torch.randn(2, 16))
    assert all((part == 0).all() for part in state.layers[0])


@needs_native
def test_what_it_cannot_serve_it_says() -> None:
    assert can_decode(Encoder(1, 16, 2).eval())
    others = [
        Encoder(1, 16, 2),  # in training
        Encoder(1, 16, 2, attention=SoftmaxAttention()).eval(),
        Encoder(1, 16, 2, attention=MomentumAttention(weighting="terminal")).eval(),
        Encoder(1, 16, 2, norm="pre").eval(),
        Encoder(1, 16, 2, residual=AdaptiveMomentumResidual(rule="released")).eval(),
        Encoder(1, 16, 2).bfloat16().eval(),
    ]
    assert not any(can_decode(encoder) for encoder in others)


@needs_native
def test_states_and_inputs_that_do_not_fit_are_refused() -> None:
    encoder = Encoder(2, 16, 2).eval()
    state = encoder.initial_state(3)
    with pytest.raises(ValueError, match="m must be contiguous"):
        Decoder(encoder, Encoder(2, 16, 4).eval().initial_state(3))
    with pytest.raises(ValueError, match="state must be a MomentumState"):
        Decoder(encoder, Encoder(2, 16, 2, attention=LinearAttention()).eval().initial_state(3))
    with pytest.raises(ValueError, match="2 layers"):
        Decoder(encoder, Encoder(1, 16, 2).eval().initial_state(3))
    with pytest.raises(ValueError, match=r"x must be torch.float32 \(3, 16\)"):
        Decoder(encoder, state).step(torch.randn(1, 16))
    with pytest.raises(ValueError, match="cannot be decoded in place"):
        Decoder(Encoder(1, 16, 2, norm="pre").eval(), state)
