"""With and without our kernels, Transformers' models say the same; `restore` gives back what was there."""

import copy
import logging
import pickle
from collections.abc import Iterator
from functools import cache
from itertools import cycle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("transformers", reason="the extra hf is not installed", minversion="5")
import transformers

from momentum_transformer import recurrent_attention
from momentum_transformer.backend.choose import backends
from momentum_transformer.hf import accelerate, restore
from momentum_transformer.hf.causal_conv1d import causal_conv1d_fn, causal_conv1d_update
from momentum_transformer.hf.gated_delta import delta_rule, delta_step
from momentum_transformer.hf.served_mixers import MIXERS, mixer_class

from .small_models import OPTIONS, VOCABULARY, small_model

pytestmark = [
    pytest.mark.skipif(not backends()[0].available, reason=f"no native kernels: {backends()[0].reason}"),
    # of Transformers itself
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*:FutureWarning"),
]
ARCHITECTURES = sorted(OPTIONS)
NEAR = 1e-4  # relative, float32


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Transformers says once for each function that it runs its slow reference, which is what we compare with."""
    before = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    yield
    transformers.logging.set_verbosity(before)


@cache
def pair(architecture: str) -> tuple[Any, Any]:
    """Two models with the same weights: as Transformers runs them, and on our kernels."""
    return small_model(architecture), accelerate(small_model(architecture))


def tokens(b: int, n: int) -> Tensor:
    return torch.randint(2, VOCABULARY, (b, n), generator=torch.Generator().manual_seed(n))


def distance(x: Tensor, y: Tensor) -> float:
    """Largest difference, relative to the largest number of y."""
    return float((x - y).abs().max() / y.abs().max())


def cache_name(model: Any) -> str:
    return "cache_params" if model.config.model_type == "mamba2" else "past_key_values"


def in_pieces(models: list[Any], ids: Tensor, *cuts: int) -> Tensor:
    """Logits of all tokens, the cache of one call going into the next; the models take turns."""
    name, kept, logits = cache_name(models[0]), None, []
    positions = torch.arange(ids.shape[1]).expand(ids.shape)
    pieces = zip(cycle(models), ids.tensor_split(cuts, 1), positions.tensor_split(cuts, 1), strict=False)
    for model, piece, where in pieces:
        out = model(piece, **{name: kept}, position_ids=where, use_cache=True)
        kept = out[name]
        logits.append(out.logits)
    return torch.cat(logits, 1)


def test_every_architecture_of_the_table_has_a_model_here() -> None:
    names = {architecture.removesuffix("_text") for architecture in OPTIONS}
    assert names == {architecture for architecture, _ in MIXERS}
    assert len(names) == 15


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@torch.no_grad()
def test_logits_are_the_same(architecture: str) -> None:
    theirs, ours = pair(architecture)
    ids = tokens(2, 75)
    assert distance(ours(ids).logits, theirs(ids).logits) < NEAR
    assert sum(ours.acceleration.replaced.values()) == sum(mixer_class(x) is not None for x in theirs.modules())


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_gradients_of_all_weights_are_the_same(architecture: str) -> None:
    ids = tokens(2, 40)
    found: list[dict[str, Tensor | None]] = []
    for model in pair(architecture):
        model.train()
        model(ids, labels=ids).loss.backward()
        found.append({name: x.grad for name, x in model.named_parameters()})
        model.zero_grad(set_to_none=True)
        model.eval()
    for name, grad in found[0].items():
        other = found[1][name]
        assert (grad is None) == (other is None), name
        if grad is not None and other is not None and grad.abs().max() > 0:
            assert distance(other, grad) < 10 * NEAR, name


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@torch.no_grad()
def test_greedy_generation_of_left_padded_prompts_gives_the_same_tokens(architecture: str) -> None:
    ids = tokens(2, 9)
    mask = torch.ones_like(ids)
    mask[0, :4] = ids[0, :4] = 0
    said = [
        model.generate(ids, attention_mask=mask, max_new_tokens=6, do_sample=False, pad_token_id=0)
        for model in pair(architecture)
    ]
    assert said[0].shape == (2, 15)
    assert torch.equal(said[0], said[1])


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@torch.no_grad()
def test_left_padding_is_the_same(architecture: str) -> None:
    ids = tokens(2, 33)
    mask = torch.ones_like(ids)
    mask[0, :20] = 0
    theirs, ours = (model(ids, attention_mask=mask).logits[mask.bool()] for model in pair(architecture))
    assert distance(ours, theirs) < NEAR


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@torch.no_grad()
def test_prefill_in_pieces_goes_on_from_the_cache(architecture: str) -> None:
    theirs, ours = pair(architecture)
    ids, cuts = tokens(2, 40), (2, 19, 38, 39)
    assert distance(in_pieces([ours], ids, *cuts), in_pieces([theirs], ids, *cuts)) < NEAR


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@torch.no_grad()
def test_a_cache_that_one_filled_serves_the_other(architecture: str) -> None:
    theirs, ours = pair(architecture)
    ids, cuts = tokens(2, 30), tuple(range(20, 30))
    expected = in_pieces([theirs], ids, *cuts)
    assert distance(in_pieces([theirs, ours], ids, *cuts), expected) < NEAR
    assert distance(in_pieces([ours, theirs], ids, *cuts), expected) < NEAR


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@torch.no_grad()
def test_bfloat16_is_as_near_to_float32(architecture: str) -> None:
    exact, ours = pair(architecture)
    ids = tokens(40, 40)
    expected = exact(ids).logits
    errors = []
    for model in (exact, ours):
        rounded = copy.deepcopy(model).to(torch.bfloat16)
        distances = (rounded(ids).logits.float() - expected).square().mean(-1).sqrt()
        errors.append(float(distances.median()))  # a few tokens are ten times as far off, in either model
    assert errors[1] <= 1.05 * errors[0]  # of 1,600 tokens, whose roundings differ


# softmax layers that no argument can part: only linear layers are left
PARTED = {"granitemoehybrid": "layer_types", "glm5_next": "layer_types"}


@pytest.mark.parametrize(
    ("architecture", "told"),
    [
        *((architecture, "cu_seq_lens_q") for architecture in ARCHITECTURES),
        *((architecture, "seq_idx") for architecture in ("qwen3_next", "kimi_linear", "mamba2", "minimax")),
    ],
)
def test_packed_documents_equal_the_documents_one_by_one(architecture: str, told: str) -> None:
    lengths = (17, 1, 22)
    ids, boundaries = tokens(1, 40), torch.tensor([0, 17, 18, 40], dtype=torch.int32)
    documents = torch.arange(3, dtype=torch.int32).repeat_interleave(torch.tensor(lengths))[None]
    packing = {"cu_seq_lens_q": boundaries, "seq_idx": documents}
    positions = torch.cat([torch.arange(n) for n in lengths])[None]
    changes = {PARTED[architecture]: ["linear_attention"] * 2} if architecture in PARTED else {}
    model = accelerate(small_model(architecture, **changes))
    grads, said = [], []
    for pieces in (ids.split(lengths, 1), (ids,)):
        more = {} if len(pieces) > 1 else {told: packing[told], "position_ids": positions}
        out = torch.cat([model(x, use_cache=False, **more)[0] for x in pieces], 1)
        (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum().backward()
        said.append(out.detach())
        grads.append([x.grad.clone() for x in model.parameters() if x.grad is not None])
        model.zero_grad(set_to_none=True)
    assert distance(said[1], said[0]) < NEAR
    assert all(distance(a, b) < 10 * NEAR for a, b in zip(grads[1], grads[0], strict=True) if b.abs().max() > 0)


@pytest.mark.parametrize("channels", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.no_grad()
def test_one_decoded_token_is_the_rule_and_changes_the_state_in_place(channels: bool, dtype: torch.dtype) -> None:
    noise = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 1, 3, width, generator=noise).to(dtype) for width in (33, 33, 20))
    g = -torch.rand(2, 1, 3, *((33,) if channels else ()), generator=noise)
    beta, state = torch.rand(2, 1, 3, generator=noise).to(dtype), torch.randn(2, 3, 33, 20, generator=noise)
    given: dict[str, Any] = {"g": g, "beta": beta, "output_final_state": True, "use_qk_l2norm_in_kernel": True}
    expected, after = delta_rule(q, k, v, initial_state=state.clone(), **given)
    y, same = delta_step(q, k, v, initial_state=state, **given)
    assert same is state
    assert distance(same, after) < 1e-6
    assert y.dtype == dtype
    assert distance(y.float(), expected.float()) < (1e-6 if dtype == torch.float32 else 1e-2)


@pytest.mark.parametrize("kept", [3, 4, 6])
@torch.no_grad()
def test_one_convolved_token_after_another_is_the_whole(kept: int) -> None:
    noise = torch.Generator().manual_seed(0)
    x, weight, bias = (torch.randn(*shape, generator=noise) for shape in ((2, 5, 9), (5, 4), (5,)))
    state = torch.zeros(2, 5, kept)
    steps = [causal_conv1d_update(x[..., t : t + 1], state, weight, bias, "silu") for t in range(9)]
    assert distance(torch.cat(steps, -1), causal_conv1d_fn(x, weight, bias, "silu")) < 1e-6
    assert torch.equal(state, x[..., -kept:])


def test_weights_and_configuration_stay() -> None:
    model = small_model("qwen3_next")
    weights = {name: x.clone() for name, x in model.state_dict().items()}
    configuration = model.config.to_dict()
    assert accelerate(model) is model
    assert model.state_dict().keys() == weights.keys()
    assert all(torch.equal(x, weights[name]) for name, x in model.state_dict().items())
    assert model.config.to_dict() == configuration


class Calls:
    """How often the kernel behind a model was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            return recurrent_attention(*args, **kwargs)

        monkeypatch.setattr("momentum_transformer.hf.gated_delta.recurrent_attention", counted)


@torch.no_grad()
def test_only_the_model_that_was_asked_for_runs_on_our_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch)
    theirs, ours = pair("qwen3_next")
    theirs(tokens(1, 5))
    assert calls.count == 0
    ours(tokens(1, 5))
    assert calls.count == 1
    copy.deepcopy(ours)(tokens(1, 5))
    pickle.loads(pickle.dumps(ours))(tokens(1, 5))
    assert calls.count == 3


@torch.no_grad()
def test_restore_undoes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch)
    model = accelerate(accelerate(small_model("qwen3_next")))
    assert restore(model) is model
    assert not hasattr(model, "acceleration")
    expected = pair("qwen3_next")[0](tokens(1, 5)).logits
    assert torch.equal(model(tokens(1, 5)).logits, expected)
    assert torch.equal(restore(model)(tokens(1, 5)).logits, expected)
    assert calls.count == 0


@torch.no_grad()
def test_without_a_model_it_is_for_those_made_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch)
    before = small_model("qwen3_next")
    try:
        accelerate()
        accelerate()
        made = small_model("qwen3_next")
        other = transformers.AutoModel.from_config(
            transformers.AutoConfig.for_model("gpt2", n_embd=8, n_layer=1, n_head=1, vocab_size=9)
        )
    finally:
        restore()
    assert made.acceleration.replaced == {("Qwen3NextGatedDeltaNet", "gated delta rule"): 1}
    assert not hasattr(other, "acceleration")
    for model, expected in ((before, 0), (made, 1), (small_model("qwen3_next"), 1)):
        model(tokens(1, 5))
        assert calls.count == expected


@pytest.mark.parametrize("products", ["", "16 Linear by oneDNN; "])
def test_it_says_what_was_replaced_and_what_was_not(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, products: str
) -> None:
    monkeypatch.setattr("momentum_transformer.hf.exchange.prefers_onednn", lambda: bool(products))
    with caplog.at_level(logging.INFO, "momentum_transformer"):
        model = accelerate(small_model("qwen3_next"))
    assert str(model.acceleration) == (
        f"1 Qwen3NextGatedDeltaNet on native kernels: gated delta rule; {products}"
        "1 Qwen3NextAttention as before: not a linear attention that the kernels know"
    )
    assert str(model.acceleration) in caplog.text


@torch.no_grad()
def test_linear_maps_go_to_onednn_where_it_is_faster_and_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this PyTorch has no oneDNN")
    multiplied: list[torch.Size] = []

    def counted(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        multiplied.append(weight.shape)
        return torch.nn.functional.linear(x, weight, bias)

    monkeypatch.setattr("momentum_transformer.hf.exchange.prefers_onednn", lambda: True)
    monkeypatch.setattr("momentum_transformer.backend.products.prefers_onednn", lambda: True)
    monkeypatch.setattr("momentum_transformer.backend.products.LEAST", 1)
    monkeypatch.setattr("momentum_transformer.backend.products._multiplied", counted)
    model = accelerate(accelerate(small_model("mamba2")))
    count = sum(isinstance(one, torch.nn.Linear) for one in model.modules())
    assert model.acceleration.products == count
    before, classes = small_model("mamba2"), [type(one) for one in small_model("mamba2").modules()]
    assert torch.equal(model(tokens(1, 5)).logits, accelerate(before)(tokens(1, 5)).logits)
    assert len(multiplied) == 2 * count
    pickle.loads(pickle.dumps(model))(tokens(1, 5))
    assert len(multiplied) == 3 * count
    restore(model)(tokens(1, 5))
    assert [type(one) for one in model.modules()] == classes
    assert len(multiplied) == 3 * count


def test_a_mixer_with_a_forward_of_its_own_is_left_alone() -> None:
    model = small_model("mamba2")
    mixer = model.backbone.layers[0].mixer
    mixer.__class__ = type("Mine", (type(mixer),), {"forward": lambda self, x, **_: x})
    accelerate(model)
    assert model.acceleration.kept == {("Mine", "it has a forward of its own, not that of Mamba2Mixer"): 1}
    assert model.acceleration.replaced == {("Mamba2Mixer", "scalar decay (Mamba-2)"): 1}


@torch.no_grad()
def test_beam_search_gives_the_same_tokens() -> None:
    said = [
        model.generate(tokens(1, 9), max_new_tokens=5, num_beams=3, do_sample=False, pad_token_id=0)
        for model in pair("falcon_h1")
    ]
    assert torch.equal(said[0], said[1])


@pytest.mark.parametrize("architecture", ["qwen3_next", "kimi_linear", "mamba2"])
def test_gradient_checkpointing_changes_nothing(architecture: str) -> None:
    grads = []
    for checkpointed in (False, True):
        model = accelerate(small_model(architecture)).train()
        if checkpointed:
            model.gradient_checkpointing_enable()
        model(tokens(1, 20), labels=tokens(1, 20)).loss.backward()
        grads.append([x.grad for x in model.parameters() if x.grad is not None])
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


def test_a_model_elsewhere_is_refused_and_nothing_changed() -> None:
    model = small_model("qwen3_next").to("meta")
    with pytest.raises(ValueError, match="needs a model on a CPU, and this one is on meta"):
        accelerate(model)
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_an_unknown_architecture_is_refused() -> None:
    with pytest.raises(ValueError, match=r"knows no mixer of Linear; it knows those of qwen3_next, .*minimax"):
        accelerate(nn.Linear(2, 2))


def test_another_major_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model("qwen3_next")
    monkeypatch.setattr("transformers.__version__", "6.0.0")  # by name: Transformers replaces its module
    with pytest.raises(ValueError, match=r"knows Transformers 5, and 6.0.0 is installed"):
        accelerate(model)
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_a_version_whose_mixer_calls_other_functions_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model("bamba")
    monkeypatch.delattr("transformers.models.bamba.modeling_bamba.mamba2_chunk_scan")
    with pytest.raises(ValueError, match="BambaMixer of this version of Transformers does not call mamba2_chunk_scan"):
        accelerate(model)
    assert not any(module._forward_pre_hooks for module in model.modules())


@torch.no_grad()
def test_a_cache_of_another_model_is_refused_and_not_written_to() -> None:
    _, ours = pair("qwen3_next")
    other = small_model("qwen3_next", linear_key_head_dim=128)
    kept = other(tokens(1, 9), use_cache=True).past_key_values
    before = [kept.layers[0].conv_states[0].clone(), kept.layers[0].recurrent_states[0].clone()]
    with pytest.raises(ValueError, match="this cache is of another model or batch: layer 0 has states"):
        ours(tokens(1, 1), past_key_values=kept)
    assert torch.equal(kept.layers[0].conv_states[0], before[0])
    assert torch.equal(kept.layers[0].recurrent_states[0], before[1])
    # and the next call is as ever
    assert distance(ours(tokens(1, 9)).logits, pair("qwen3_next")[0](tokens(1, 9)).logits) < NEAR


@torch.no_grad()
def test_packing_that_does_not_fit_is_refused() -> None:
    _, ours = pair("qwen3_next")
    for boundaries, ids in (([0, 3, 8], tokens(1, 9)), ([0, 9], tokens(2, 9))):
        places = torch.arange(9).expand(ids.shape)
        with pytest.raises(ValueError, match="cu_seqlens packs documents into one row"):
            ours(ids, cu_seq_lens_q=torch.tensor(boundaries), position_ids=places, use_cache=False)
    numbers, places = torch.zeros(1, 8, dtype=torch.int32), torch.arange(9)[None]
    with pytest.raises(ValueError, match=r"seq_idx must have shape \(1, 9\)"):
        ours(tokens(1, 9), seq_idx=numbers, position_ids=places, use_cache=False)
