"""Our models keep what Transformers expects of any: saving, loading, embeddings, masks, losses, hidden states."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'momentum-transformer[hf]'")

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    DataCollatorWithFlattening,
)

from momentum_transformer import MomentumAttention, MomentumResidual, SoftmaxAttention
from momentum_transformer.hf import (
    MomentumConfig,
    MomentumForCausalLM,
    MomentumForSequenceClassification,
    MomentumModel,
)

from .small import MIXERS, VOCABULARY, config, language_model, tokens

CLOSE = {"rtol": 1e-10, "atol": 1e-10}


@pytest.mark.parametrize("mixers", MIXERS)
@torch.no_grad()
def test_what_was_saved_is_what_is_loaded(mixers: str, tmp_path: Path) -> None:
    model = language_model(mixers, residual={"name": "momentum", "beta": 0.3})
    model.save_pretrained(tmp_path)
    assert sorted(path.name for path in tmp_path.glob("*.safetensors")) == ["model.safetensors"]
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert isinstance(loaded, MomentumForCausalLM)
    assert loaded.dtype == torch.float64
    assert loaded.config.mixers == model.config.mixers
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name
    torch.testing.assert_close(loaded(tokens(2, 7)).logits, model(tokens(2, 7)).logits, **CLOSE)


def test_auto_classes_know_our_models(tmp_path: Path) -> None:
    config().save_pretrained(tmp_path)
    found = AutoConfig.from_pretrained(tmp_path)
    assert isinstance(found, MomentumConfig)
    assert found.layer_types == ["linear_attention", "full_attention"]
    assert isinstance(AutoModel.from_config(found), MomentumModel)
    assert isinstance(AutoModelForSequenceClassification.from_config(found), MomentumForSequenceClassification)


def test_a_model_in_sixteen_bits_computes_in_them(tmp_path: Path) -> None:
    language_model("hybrid").save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert loaded(tokens(1, 5)).logits.dtype == torch.bfloat16


def test_mixers_may_be_names_descriptions_or_objects(tmp_path: Path) -> None:
    one = config(mixers="momentum", residual=MomentumResidual(beta=0.3))
    other = MomentumConfig(
        **{**json.loads(one.to_json_string()), "mixers": [MomentumAttention(beta=0.6)] * 2, "residual": one.residual}
    )
    assert one.mixers == other.mixers == [{"name": "momentum", "beta": 0.6}] * 2
    assert one.residual == {"name": "momentum", "beta": 0.3}
    block: Any = config("hybrid").encoder().blocks[1]
    assert block.attention.mixer.convolution.options.taps == 3


def test_a_saved_model_may_be_loaded_with_other_layers_and_mixers(tmp_path: Path) -> None:
    language_model("gated delta").save_pretrained(tmp_path)
    changes: list[dict[str, Any]] = [{"num_hidden_layers": 3}, {"num_hidden_layers": 1}, {"mixers": "softmax"}]
    for change in changes:
        loaded = MomentumForCausalLM.from_pretrained(tmp_path, **change)
        count, name = change.get("num_hidden_layers", 2), change.get("mixers", "gated-delta")
        assert [mixer["name"] for mixer in loaded.config.mixers] == [name] * count
        assert len(loaded.config.layer_types) == len(loaded.model.encoder.blocks) == count
        again = MomentumConfig(**json.loads(loaded.config.to_json_string()))
        assert again.mixers == loaded.config.mixers
    loaded = MomentumForCausalLM.from_pretrained(tmp_path, residual="adaptive")
    assert loaded.config.residual == {"name": "adaptive"}
    language_model("hybrid").save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="mixers must be one, or one for each of 3 layers, not 2"):
        MomentumForCausalLM.from_pretrained(tmp_path, num_hidden_layers=3)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a mixer that is not": ({"mixers": "mamba"}, "name must be one of softmax, .*, not 'mamba'"),
    "an option that is not": ({"mixers": {"name": "linear", "beta": 1}}, "linear has no option 'beta'; it has"),
    "an option that must be": ({"mixers": "window"}, "window needs the option 'window'"),
    "a residual without its beta": ({"residual": "momentum"}, "'beta': give {'name': 'momentum', 'beta': ...}"),
    "too few mixers": ({"mixers": ["linear"]}, "one for each of 2 layers, not 1"),
    "a value out of range": ({"mixers": {"name": "momentum", "beta": 1.0}}, "beta"),
    "a feature map that is not": ({"mixers": {"name": "linear", "feature_map": "relu"}}, "feature_map must be one of"),
    "a feature map of one's own": ({"mixers": [MomentumAttention(feature_map=torch.relu)] * 2}, "has no description"),
    "heads that do not fit": ({"num_attention_heads": 3}, "multiple of num_attention_heads"),
    "a slip of a name": ({"mixer": "delta"}, "did you mean 'mixers'"),
    "tied halves": ({"positions": "sinusoidal", "tie_word_embeddings": True}, "cannot be tied"),
}


@pytest.mark.parametrize("name", BAD)
def test_impossible_configurations_are_refused_when_they_are_made(name: str) -> None:
    options, words = BAD[name]
    with pytest.raises(Exception, match=words):
        MomentumConfig(**({"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2} | options))


@pytest.mark.parametrize(
    ("mixers", "positions"),
    [*((mixers, "none") for mixers in MIXERS), ("hybrid", "sinusoidal"), ("hybrid", "learned")],
)
@torch.no_grad()
def test_masked_tokens_do_not_exist(mixers: str, positions: str) -> None:
    model = language_model(mixers, positions=positions)
    real = tokens(1, 6)
    expected = model(real).logits[0]
    for where in ([2, 3, 4, 5, 6, 7], [0, 1, 2, 3, 4, 5], [0, 1, 4, 5, 6, 8]):  # padding on the left, right, inside
        padded = tokens(2, 9, seed=5)
        mask = torch.ones(2, 9, dtype=torch.long)
        mask[0] = 0
        mask[0, where], padded[0, where] = 1, real[0]
        torch.testing.assert_close(model(padded, attention_mask=mask).logits[0, where], expected, **CLOSE)


@pytest.mark.parametrize("mixers", ["retention", "gated delta", "hybrid", "gated momentum"])
@torch.no_grad()
def test_packed_documents_do_not_see_each_other(mixers: str) -> None:
    model = language_model(mixers, positions="sinusoidal")
    first, second = tokens(1, 5), tokens(1, 4, seed=2)
    packed = torch.cat([first, second], 1)
    expected = torch.cat([model(first).logits, model(second).logits], 1)
    places = torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 3]])
    boundaries = torch.tensor([0, 5, 9], dtype=torch.int32)
    for told in ({"position_ids": places}, {"position_ids": places, "cu_seq_lens_q": boundaries}):
        torch.testing.assert_close(model(packed, **told).logits, expected, **CLOSE)
    lines = [{"input_ids": line[0].tolist()} for line in (first, second)]
    for boundaries_too in (False, True):
        batch = DataCollatorWithFlattening(return_flash_attn_kwargs=boundaries_too)(lines)
        found = model(**batch)
        torch.testing.assert_close(found.logits, expected, **CLOSE)
        assert found.past_key_values is None


def test_embeddings_can_be_resized_and_tied(tmp_path: Path) -> None:
    model = language_model("hybrid", tie_word_embeddings=True)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    before = model(tokens(1, 5)).logits
    model.resize_token_embeddings(VOCABULARY + 4, mean_resizing=False)
    assert model.config.vocab_size == model(tokens(1, 5)).logits.shape[-1] == VOCABULARY + 4
    torch.testing.assert_close(model(tokens(1, 5)).logits[..., :VOCABULARY], before, **CLOSE)
    model.save_pretrained(tmp_path)
    assert "lm_head.weight" not in load_file(tmp_path / "model.safetensors")
    loaded = MomentumForCausalLM.from_pretrained(tmp_path)
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight
    torch.testing.assert_close(loaded(tokens(1, 5)).logits, model(tokens(1, 5)).logits, **CLOSE)


def test_the_loss_is_that_of_the_next_token() -> None:
    model = language_model()
    ids = tokens(2, 6)
    labels = ids.clone()
    labels[0, :3] = -100
    found = model(ids, labels=labels)
    expected = nn.functional.cross_entropy(found.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
    torch.testing.assert_close(found.loss, expected.to(found.loss.dtype), rtol=1e-6, atol=1e-6)


def test_logits_of_the_last_tokens_only_are_the_same() -> None:
    model = language_model()
    logits = model(tokens(2, 6)).logits
    torch.testing.assert_close(model(tokens(2, 6), logits_to_keep=2).logits, logits[:, -2:])
    torch.testing.assert_close(model(tokens(2, 6), logits_to_keep=torch.tensor([1, 4])).logits, logits[:, [1, 4]])


def test_hidden_states_tuples_and_embeddings_are_served() -> None:
    model = language_model()
    ids = tokens(2, 6)
    found = model(ids, output_hidden_states=True)
    assert [tuple(state.shape) for state in found.hidden_states] == [(2, 6, 16)] * 3
    assert torch.equal(found.hidden_states[0], model.model.embed_tokens(ids))
    assert torch.equal(model(ids, return_dict=False)[0], found.logits)
    assert torch.equal(model(inputs_embeds=model.get_input_embeddings()(ids)).logits, found.logits)


def test_weights_that_a_checkpoint_lacks_start_as_in_a_fresh_model(tmp_path: Path) -> None:
    """Gates start at constants, decays and convolutions in ranges, which loading on a meta device must not lose."""
    torch.manual_seed(0)
    made = config("momentum delta", hidden_size=64)
    model = MomentumForCausalLM(made)
    model.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    kept = {name: tensor for name, tensor in weights.items() if "blocks.0" not in name and "lm_head" not in name}
    save_file(kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
    loaded = MomentumForCausalLM.from_pretrained(tmp_path)
    for name, parameter in loaded.named_parameters():
        if name in kept:
            assert torch.equal(parameter, kept[name]), name
        else:
            assert bool(parameter.isfinite().all()), name
    loaded.requires_grad_(False)
    block: Any = loaded.model.encoder.blocks[0]
    mixer = block.attention.mixer
    assert torch.equal(mixer.mix.beta.project.weight, torch.zeros(2, 64))  # β starts as the constant ½
    assert torch.equal(mixer.mix.beta.project.bias, torch.zeros(2))
    assert bool((mixer.mix.alpha.rate >= 0).all())
    assert bool((mixer.mix.alpha.rate <= 2.78).all())  # log of 1 to 16
    assert 0.2 < float(mixer.convolution.query.abs().mean()) < 0.3  # uniform in ±½
    query = "model.encoder.blocks.0.attention.q_proj.weight"
    assert abs(loaded.get_parameter(query).std().item() / model.get_parameter(query).std().item() - 1) < 0.1


def test_a_classifier_takes_the_mean_of_the_tokens_that_exist() -> None:
    torch.manual_seed(0)
    model = MomentumForSequenceClassification(
        config("hybrid", causal=False, positions="learned", num_labels=3, initializer_range=0.5)
    )
    model = model.double().eval()
    short = tokens(1, 4)
    padded = torch.cat([tokens(1, 3, seed=3), short], 1)
    mask = torch.tensor([[0, 0, 0, 1, 1, 1, 1]])
    expected = model(short).logits
    torch.testing.assert_close(model(padded, attention_mask=mask).logits, expected, **CLOSE)
    found = model(short, labels=torch.tensor([2]))
    torch.testing.assert_close(found.loss, nn.functional.cross_entropy(expected, torch.tensor([2])))


def test_what_cannot_be_is_refused_in_one_line() -> None:
    model = language_model()
    with pytest.raises(ValueError, match="give one of input_ids and inputs_embeds"):
        model()
    with pytest.raises(ValueError, match=r"attention_mask must have shape \(2, 6 or more\)"):
        model(tokens(2, 6), attention_mask=torch.ones(2, 5))
    with pytest.raises(ValueError, match="needs MomentumConfig\\(causal=True\\)"):
        MomentumForCausalLM(config(causal=False))
    with pytest.raises(ValueError, match="packed documents and use_cache"):
        model(tokens(1, 4), cu_seq_lens_q=torch.tensor([0, 2, 4]), use_cache=True)


def test_softmax_described_is_softmax() -> None:
    block: Any = config("softmax").encoder().blocks[0]
    assert block.attention.mixer == SoftmaxAttention()


def test_nobody_waits_for_transformers_who_does_not_ask_for_it() -> None:
    program = (
        "import sys, momentum_transformer.commands, momentum_transformer.fla\nassert 'transformers' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_language_model_serves_as_the_start_of_other_models(tmp_path: Path) -> None:
    model = language_model("gated delta")
    model.save_pretrained(tmp_path)
    plain = AutoModel.from_pretrained(tmp_path)
    classifier = AutoModelForSequenceClassification.from_pretrained(tmp_path, num_labels=3)
    weights = model.model.state_dict()
    for other in (plain, classifier.model):
        for name, tensor in other.state_dict().items():
            assert torch.equal(tensor, weights[name]), name
    assert bool(classifier(tokens(2, 4)).logits.isfinite().all())
    assert classifier.classifier[0].weight.abs().max() <= 0.25  # as nn.Linear(16, ...) starts
