"""Training, prefill and decoding are one model, for every mixer, residual rule and norm."""

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from momentum_transformer import (
    AdaptiveMomentumResidual,
    Encoder,
    LinearAttention,
    MomentumAttention,
    MomentumResidual,
    SoftmaxAttention,
)
from momentum_transformer.layers import LearnedMomentumAttention, Mixer, Residual
from momentum_transformer.ops import RULES, detach_state, load_state, map_state, reorder_state, state_tensors
from tests.family import RESIDUALS, mixers

MIXERS: dict[str, Mixer | list[Mixer]] = {
    **mixers("softmax", "linear", "momentum", "learned momentum"),
    "hybrid": [SoftmaxAttention(), MomentumAttention(beta=0.9), LinearAttention()],
}
CONNECTIONS: dict[str, Residual] = {
    **{name: rule for name, rule in RESIDUALS.items() if name != "adaptive"},
    **{f"adaptive, {rule}": AdaptiveMomentumResidual(gamma=0.9, rule=rule) for rule in RULES},
}


def encoder(mixer: str, residual: str, norm: Any, **options: Any) -> Encoder:
    torch.manual_seed(0)
    model = Encoder(3, 16, 2, attention=MIXERS[mixer], residual=CONNECTIONS[residual], norm=norm, **options)
    return model.double().eval()


def tokens(n: int = 11) -> torch.Tensor:
    return torch.randn(2, n, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.grid
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("residual", CONNECTIONS)
@pytest.mark.parametrize("mixer", MIXERS)
def test_training_prefill_and_decoding_agree(mixer: str, residual: str, norm: str) -> None:
    model, x = encoder(mixer, residual, norm), tokens()
    whole = model(x)
    prefix, state = model(x[:, :4], return_state=True)
    outputs = [prefix]
    for i in range(4, 11):
        y, state = model.step(x[:, i], state)
        outputs.append(y[:, None])
    assert torch.allclose(torch.cat(outputs, 1), whole, atol=1e-12)

    state, outputs = None, []
    for i in range(11):
        y, state = model.step(x[:, i : i + 1], state)
        outputs.append(y)
    assert torch.allclose(torch.cat(outputs, 1), whole, atol=1e-12)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("mixer", MIXERS)
def test_padding_never_changes_a_real_position(mixer: str, causal: bool) -> None:
    model, x = encoder(mixer, "adaptive, paper", "pre", causal=causal), tokens()
    mask = torch.tensor([[1, 1, 1, 0, 1, 1, 0, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0]], dtype=torch.bool)
    y = model(x, key_mask=mask)
    for sample in range(2):
        alone = model(x[sample : sample + 1, mask[sample]])
        assert torch.allclose(y[sample, mask[sample]], alone[0], atol=1e-12)


@pytest.mark.parametrize("mixer", MIXERS)
def test_prefill_of_padded_prompts_then_decoding_equals_each_prompt_alone(mixer: str) -> None:
    model, x = encoder(mixer, "momentum", "post"), tokens()
    lengths = [10, 6]
    mask = torch.arange(10) < torch.tensor(lengths)[:, None]
    _, state = model(x[:, :10], key_mask=mask, return_state=True)
    y, _ = model.step(x[:, 10], state)
    for sample, length in enumerate(lengths):
        prompt = torch.cat([x[sample, :length], x[sample, 10:11]])[None]
        assert torch.allclose(y[sample], model(prompt)[0, -1], atol=1e-12)


def test_causal_means_that_the_future_does_not_matter() -> None:
    for mixer, norm in itertools.product(MIXERS, ("post", "pre")):
        model, x = encoder(mixer, "momentum", norm), tokens()
        changed = x.clone()
        changed[:, 7:] = 5
        assert torch.allclose(model(x)[:, :7], model(changed)[:, :7], atol=1e-13)
        assert not torch.allclose(model(x)[:, 7:], model(changed)[:, 7:])


@pytest.mark.parametrize("mixer", MIXERS)
def test_states_can_be_saved_reordered_detached_and_are_never_changed(mixer: str, tmp_path: Path) -> None:
    model, x = encoder(mixer, "momentum", "post"), tokens()
    _, state = model(x[:, :6], return_state=True)
    kept = map_state(torch.clone, state)
    expected, _ = model.step(x[:, 6], state)
    assert all(
        torch.equal(a, b) for a, b in zip(state_tensors(state).values(), state_tensors(kept).values(), strict=True)
    )

    save_file(state_tensors(detach_state(state)), tmp_path / "state.safetensors")
    loaded = load_state(model.initial_state(2), load_file(tmp_path / "state.safetensors"))
    assert torch.equal(model.step(x[:, 6], loaded)[0], expected)

    beams = torch.tensor([1, 0, 1])
    reordered, _ = model.step(x[beams, 6], reorder_state(state, beams))
    assert torch.allclose(reordered, expected[beams], atol=1e-13)


def test_step_from_the_initial_state_equals_step_from_nothing(tmp_path: Path) -> None:
    for mixer in MIXERS:
        model, x = encoder(mixer, "plain", "post"), tokens()
        initial = model.initial_state(2)
        assert torch.equal(model.step(x[:, 0], initial)[0], model.step(x[:, 0])[0])
        save_file(state_tensors(initial), tmp_path / "initial.safetensors")


def test_gradients_flow_through_prefill_and_steps() -> None:
    model, x = encoder("learned momentum", "adaptive, paper", "pre"), tokens().requires_grad_()
    (whole,) = torch.autograd.grad(model(x)[:, -1].sum(), x)
    _, state = model(x[:, :10], return_state=True)
    (cut,) = torch.autograd.grad(model.step(x[:, 10], state)[0].sum(), x)
    assert torch.allclose(whole, cut, atol=1e-12)


def test_learned_momentum_learns_one_pair_a_head_and_layer() -> None:
    model = encoder("learned momentum", "plain", "post")
    model(tokens()).square().mean().backward()
    learned = {name: p for name, p in model.named_parameters() if "beta_logit" in name or "gamma_log" in name}
    assert len(learned) == 6
    assert all(p.shape == (2,) and p.grad is not None and p.grad.abs().min() > 0 for p in learned.values())


def test_layers_do_not_share_parameters() -> None:
    model = encoder("learned momentum", "plain", "post")
    named = list(model.named_parameters(remove_duplicate=False))
    assert len({id(parameter) for _, parameter in named}) == len(named)


def test_softmax_dropout_acts_in_training_only() -> None:
    model = Encoder(1, 16, 2, attention=SoftmaxAttention(dropout=0.5)).double()
    x = tokens()
    assert not torch.equal(model(x), model(x))
    model.eval()
    assert torch.equal(model(x), model(x))


def test_states_pass_between_autocast_and_full_precision() -> None:
    for mixer in MIXERS:
        model, x = encoder(mixer, "plain", "pre").float(), tokens().float()
        exact, state = model.step(x[:, 0])
        with torch.autocast("cpu", torch.bfloat16):
            rough, inside = model.step(x[:, 0], model.initial_state(2))
            model.step(x[:, 1], state)
        model.step(x[:, 1], inside)
        assert torch.allclose(rough.float(), exact, atol=0.1)


def test_bfloat16_autocast_trains_every_mixer() -> None:
    for mixer in MIXERS:
        model = encoder(mixer, "adaptive, paper", "pre").float()
        with torch.autocast("cpu", torch.bfloat16):
            y = model(tokens().float())
        y.float().square().sum().backward()
        assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 3}, "width must be a multiple of heads, not width=16 and heads=3"),
        ({"norm": "none"}, "norm must be one of 'post', 'pre', not 'none'"),
        ({"activation": "tanh"}, "activation must be one of 'relu', 'gelu', not 'tanh'"),
        ({"attention": [LinearAttention()]}, "one mixer for each of 2 layers, not 1"),
        ({"depth": 0}, "depth must be 1 or more, not 0"),
        ({"attention": "momentum"}, r"attention must be a mixer such as .*, not 'momentum'"),
    ],
)
def test_encoder_refuses_impossible_shapes(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Encoder(**({"depth": 2, "width": 16, "heads": 2} | options))


def test_encoder_says_what_is_wrong_with_its_input() -> None:
    model, x = encoder("momentum", "plain", "post"), tokens()
    with pytest.raises(ValueError, match=r"x must have shape \(batch, length, 16\), not \(2, 16\)"):
        model(x[:, 0])
    with pytest.raises(ValueError, match=r"x_t must have shape \(batch, 16\) or \(batch, 1, 16\)"):
        model.step(x)
    with pytest.raises(ValueError, match=r"x must be torch.float64 like this encoder, not torch.float32"):
        model(x.float())
    with pytest.raises(ValueError, match="x must be on cpu, where this encoder is, not meta"):
        model(x.to("meta"))
    with pytest.raises(ValueError, match="state must be an EncoderState, not tuple"):
        model(x, state=())
    _, state = model(x, return_state=True)
    with pytest.raises(ValueError, match="state must have 3 layers like this encoder, not 2"):
        model(x, state=state._replace(layers=state.layers[:2]))
    with pytest.raises(ValueError, match=r"state.m must have shape \(1, 2, 8, 8\)"):
        model.step(x[:1, 0], state)
    with pytest.raises(ValueError, match=r"need Encoder\(causal=True\)"):
        encoder("momentum", "plain", "post", causal=False)(x, return_state=True)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MomentumAttention(beta=1.0), r"beta must be in \[0, 1\)"),
        (lambda: MomentumAttention(gamma=0.0), "gamma must be positive"),
        (lambda: MomentumAttention(weighting="x"), "weighting must be one of"),
        (lambda: SoftmaxAttention(dropout=1.0), r"dropout must be in \[0, 1\)"),
        (lambda: MomentumResidual(beta=-1.0), r"beta must be in \[0, 1\)"),
        (lambda: AdaptiveMomentumResidual(delta=-1.0), r"delta must be in \[0, 1\]"),
        (lambda: AdaptiveMomentumResidual(rule="best"), "rule must be one of 'paper', 'released'"),
        (
            lambda: LearnedMomentumAttention(MomentumAttention(beta=0.0)).build(16, 2),
            "a learned beta cannot start at 0",
        ),
    ],
)
def test_choices_are_checked_when_they_are_made(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
