"""Decoding on buffers gives what `Encoder.step` gives, token after token."""

from typing import Any

import pytest
import torch

from momentum_transformer import (
    AdaptiveMomentumResidual,
    Encoder,
    GatedDeltaAttention,
    LinearAttention,
    MomentumAttention,
    SoftmaxAttention,
)
from momentum_transformer.decoding.decoder import Decoder, can_decode
from momentum_transformer.layers.block import Norm
from momentum_transformer.layers.presets import ModernBlock
from momentum_transformer.layers.residual import Residual
from tests.family import RESIDUALS, mixers, needs_native

RULES: dict[str, Residual] = {
    **{name: RESIDUALS[name] for name in ("plain", "momentum", "adaptive")},
    "adaptive, bounded": AdaptiveMomentumResidual(1.0, 0.5),
}
MIXERS = {**mixers("linear", "momentum", "softmax"), "no momentum": MomentumAttention(0.0)}


@pytest.mark.grid
@pytest.mark.kernels
@needs_native
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("mixer", MIXERS)
@pytest.mark.parametrize(("width", "norm"), [(24, "post"), (42, "post"), (24, "pre")])
def test_decoding_equals_the_step_of_the_encoder(
    width: int, norm: Norm, mixer: str, rule: str, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    encoder = Encoder(3, width, 2, attention=MIXERS[mixer], residual=RULES[rule], norm=norm, activation="gelu")
    encoder = encoder.to(dtype).eval()
    _, state = encoder(torch.randn(5, 7, width, dtype=dtype), return_state=True)
    decoder = Decoder(encoder, state, max_new_tokens=6)
    for _ in range(6):
        x = torch.randn(5, width, dtype=dtype)
        y, state = encoder.step(x, state)
        with torch.inference_mode():
            found = decoder.step(x)
        assert torch.allclose(found, y, rtol=0, atol=1e-12 if dtype == torch.float64 else 2e-5)
    for mine, theirs in zip(decoder.state.layers, state.layers, strict=True):
        assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(mine, theirs, strict=True))


@needs_native
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("width", [24, 42])
def test_the_modern_block_decodes_as_it_runs(width: int, rule: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    mixers = [MomentumAttention(0.6), SoftmaxAttention(), GatedDeltaAttention()]
    encoder = Encoder(3, width, 2, attention=mixers, residual=RULES[rule], block=ModernBlock(), feedforward=90)
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    encoder = encoder.to(dtype).eval()
    _, state = encoder(torch.randn(5, 7, width, dtype=dtype), return_state=True)
    head = torch.randn(11, width, dtype=dtype)
    decoder = Decoder(encoder, state, max_new_tokens=6, head=(head, None))
    for _ in range(6):
        x = torch.randn(5, width, dtype=dtype)
        y, state = encoder.step(x, state)
        assert torch.allclose(decoder.step(x), y @ head.T, rtol=0, atol=1e-11 if dtype == torch.float64 else 1e-3)


@pytest.mark.kernels
@needs_native
@pytest.mark.parametrize("mixer", MIXERS)
def test_tokens_that_do_not_exist_are_not_seen(mixer: str) -> None:
    encoder = Encoder(2, 16, 2, attention=MIXERS[mixer]).double().eval()
    x = torch.randn(3, 5, 16, dtype=torch.float64)
    mask = torch.arange(5) < torch.tensor([[5], [2], [0]])
    x[~mask] = float("nan")
    _, state = encoder(x, key_mask=mask, return_state=True)
    token = torch.randn(3, 16, dtype=torch.float64)
    decoder = Decoder(encoder, state, max_new_tokens=1)
    assert torch.allclose(decoder.step(token), encoder.step(token, state)[0], atol=1e-12)


@pytest.mark.kernels
@needs_native
@pytest.mark.parametrize("mixer", MIXERS)
@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 13])
def test_a_row_does_not_depend_on_its_batch_nor_on_the_threads(count: int, mixer: str) -> None:
    encoder = Encoder(2, 96, 3, attention=MIXERS[mixer]).eval()
    head = torch.nn.Linear(96, 30, bias=False)
    x, found = torch.randn(4, 13, 96), []
    before = torch.get_num_threads()
    for rows, threads in ((13, 1), (count, 3)):
        torch.set_num_threads(threads)
        try:
            decoder = Decoder(encoder, encoder.initial_state(rows), max_new_tokens=4, head=head)
        finally:
            torch.set_num_threads(before)
        found.append(torch.stack([decoder.step(token) for token in x[:, :rows]]))
    assert torch.equal(found[0][:, :count], found[1])


def test_every_instruction_set_gives_the_same(instruction_set: str) -> None:
    assert instruction_set
    for attention in MIXERS.values():
        encoder = Encoder(2, 40, 2, attention=attention).double().eval()
        x = torch.randn(9, 40, dtype=torch.float64)
        state = encoder.initial_state(9)
        y, _ = encoder.step(x, state)
        assert torch.allclose(Decoder(encoder, state, max_new_tokens=1).step(x), y, atol=1e-12)


@pytest.mark.kernels
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
        Encoder(1, 16, 2, attention=MomentumAttention(weighting="terminal")).eval(),
        Encoder(1, 16, 2, residual=AdaptiveMomentumResidual(rule="released")).eval(),
        Encoder(1, 16, 2).bfloat16().eval(),
    ]
    assert not any(can_decode(encoder) for encoder in others)


@pytest.mark.kernels
@needs_native
def test_states_and_inputs_that_do_not_fit_are_refused() -> None:
    encoder = Encoder(2, 16, 2).eval()
    state = encoder.initial_state(3)
    with pytest.raises(ValueError, match=r"state.m must have shape \(3, 2, 8, 8\)"):
        Decoder(encoder, Encoder(2, 16, 4).eval().initial_state(3))
    with pytest.raises(ValueError, match="state must be a MomentumState"):
        Decoder(encoder, Encoder(2, 16, 2, attention=LinearAttention()).eval().initial_state(3))
    with pytest.raises(ValueError, match="2 layers"):
        Decoder(encoder, Encoder(1, 16, 2).eval().initial_state(3))
    with pytest.raises(ValueError, match=r"x must be torch.float32 \(3, 16\)"):
        Decoder(encoder, state).step(torch.randn(1, 16))
    softmax = Encoder(2, 16, 2, attention=SoftmaxAttention()).eval()
    with pytest.raises(ValueError, match="softmax needs max_new_tokens, the number of steps to come, not None"):
        Decoder(softmax, softmax.initial_state(3))
    with pytest.raises(ValueError, match="state must be a CacheState"):
        Decoder(softmax, state, max_new_tokens=1)
    full = Decoder(softmax, softmax.initial_state(3), max_new_tokens=1)
    full.step(torch.randn(3, 16))
    with pytest.raises(ValueError, match="no step is left"):
        full.step(torch.randn(3, 16))
    with pytest.raises(ValueError, match="cannot be decoded in place"):
        Decoder(Encoder(1, 16, 2).train(), state)


@needs_native
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_new_tokens": -1}, "max_new_tokens must be 0 or more, not -1"),
        ({"max_new_tokens": 2.5}, "max_new_tokens must be a whole number, not 2.5"),
        ({"max_new_tokens": True}, "max_new_tokens must be a whole number, not True"),
        ({"max_new_tokens": "9"}, "max_new_tokens must be a whole number, not '9'"),
        ({"state": None}, "state must be an EncoderState, not NoneType"),
        ({"head": torch.nn.Linear(8, 30)}, r"head must have a weight \(out_features, 16\), not \(30, 8\)"),
        ({"head": (torch.ones(9, 16), torch.ones(3))}, r"head must have a bias \(9,\) or none, not \(3,\)"),
        ({"head": torch.nn.Linear(16, 9).double()}, r"head must be torch.float32 on cpu .*, not torch.float64 on cpu"),
    ],
)
def test_impossible_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    encoder = Encoder(2, 16, 2).eval()
    with pytest.raises(ValueError, match=message):
        Decoder(encoder, **{"state": encoder.initial_state(3), **options})


@needs_native
def test_a_step_needs_a_tensor_and_a_step_that_is_left() -> None:
    encoder = Encoder(2, 16, 2).eval()
    decoder = Decoder(encoder, encoder.initial_state(1), max_new_tokens=0)
    with pytest.raises(ValueError, match="x must be a tensor, not list"):
        decoder.step([0.0] * 16)
    with pytest.raises(ValueError, match="no step is left"):
        decoder.step(torch.randn(1, 16))
