"""Language models of modern blocks, RMSNorm and SwiGLU under a tied embedding, are the same in Transformers."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'momentum-transformer[hf]'")

from transformers import AutoModelForCausalLM, AutoTokenizer

import momentum_transformer
from momentum_transformer import Encoder, MomentumAttention, PlainResidual
from momentum_transformer.cli import main
from momentum_transformer.experiments.model_config import model_of
from momentum_transformer.experiments.named_models import MIXERS as NAMED
from momentum_transformer.experiments.runs import Request, run_training
from momentum_transformer.generation.tokens import Sampling, Writer
from momentum_transformer.hf import MomentumConfig, to_native, to_transformers
from momentum_transformer.layers import GatedFeedForward, ModernBlock
from momentum_transformer.models.language_model import LanguageModel

from .small import MIXERS, VOCABULARY, config, gradients, language_model, tokens

CLOSE = {"rtol": 1e-10, "atol": 1e-10}
MODERN: dict[str, Any] = {"block": "modern", "tie_word_embeddings": True, "scale_embedding": True}
UNKNOWN = ("reformer", "performer", "linformer")  # to Transformers
PROMPT = "To be"


def native_model(name: str, *, positions: bool = False, tied: bool = True) -> tuple[LanguageModel, Any, Any]:
    """A model as `momentum train text` makes it, its mixers and its residual rule."""
    torch.manual_seed(0)
    made = model_of({"attention": name, "depth": 2, "width": 16, "heads": 2, "feedforward": 50, "block": "modern"})
    model = LanguageModel(VOCABULARY, made.encoder(causal=True), positions=positions, tied=tied)
    nn.init.normal_(model.embedding.weight, std=0.5)
    return model.double().eval(), made.mixers(), made.connection.make()


@pytest.mark.parametrize("name", [name for name in NAMED if name not in UNKNOWN])
@pytest.mark.parametrize("positions", [False, True])
@torch.no_grad()
def test_there_and_back_the_logits_are_the_same(name: str, positions: bool, tmp_path: Path) -> None:
    native, mixers, residual = native_model(name, positions=positions)
    model: Any = to_transformers(native, mixers, residual)
    expected = native(tokens(2, 9))
    torch.testing.assert_close(model(tokens(2, 9)).logits, expected, **CLOSE)
    model.save_pretrained(tmp_path)
    assert "lm_head.weight" not in load_file(tmp_path / "model.safetensors")
    loaded: Any = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight
    torch.testing.assert_close(loaded(tokens(2, 9)).logits, expected, **CLOSE)
    again: Any = momentum_transformer.load(tmp_path)
    assert again.tied
    assert again.state_dict().keys() == native.state_dict().keys()
    assert all(torch.equal(again.state_dict()[key], tensor) for key, tensor in native.state_dict().items())
    torch.testing.assert_close(again(tokens(2, 9)), expected, **CLOSE)


@torch.no_grad()
def test_an_output_layer_of_its_own_stays_one() -> None:
    native, mixers, residual = native_model("momentum", positions=True, tied=False)
    model: Any = to_transformers(native, mixers, residual)
    assert not model.config.tie_word_embeddings
    for found in (model(tokens(2, 9)).logits, to_native(model)(tokens(2, 9))):
        torch.testing.assert_close(found, native(tokens(2, 9)), **CLOSE)


@pytest.mark.parametrize(
    "options",
    [{"tie_word_embeddings": False}, {"scale_embedding": False}, {"tie_word_embeddings": False, "head_bias": True}],
)
@torch.no_grad()
def test_models_that_ours_do_not_tie_become_ours_all_the_same(options: dict[str, Any]) -> None:
    model = language_model("hybrid", **(MODERN | options))
    torch.testing.assert_close(to_native(model)(tokens(2, 5)), model(tokens(2, 5)).logits, **CLOSE)
    placed = language_model("hybrid", **(MODERN | options | {"positions": "added-sinusoidal"}))
    with pytest.raises(ValueError, match="has no counterpart here"):
        to_native(placed)


@pytest.mark.parametrize("name", ["gated-delta", "softmax", "hybrid"])
def test_an_exported_text_model_writes_what_its_run_writes(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, run, out = tmp_path / "some.txt", tmp_path / "run", tmp_path / "out"
    source.write_text("To be, or not to be, that is the question. " * 300)
    settings = (f"data.source={source}", "data.units=characters", "data.validation=0.1", "train.steps=20")
    assert run_training(Request("text", name, "tiny", 0, settings), run, resume=False)
    capsys.readouterr()
    for words in (
        ["generate", str(run), "--prompt", PROMPT, "--tokens", "9", "--temperature", "0"],
        ["export", str(run), str(out)],
    ):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert not ended.value.code
    model: Any = AutoModelForCausalLM.from_pretrained(out)
    tokenizer: Any = AutoTokenizer.from_pretrained(out)
    prompt: Tensor = tokenizer(PROMPT, return_tensors="pt").input_ids
    made: Tensor = model.generate(prompt, max_new_tokens=9, do_sample=False)
    assert tokenizer.decode(made[0]) in capsys.readouterr().out
    ours: Any = momentum_transformer.load(out)
    writer = Writer(ours, prompt[0].tolist(), tokens=9, context=None)
    assert list(writer.write(Sampling(temperature=0))) == made[0, prompt.shape[1] :].tolist()


@pytest.mark.parametrize("mixers", MIXERS)
@pytest.mark.parametrize("positions", ["none", "added-sinusoidal"])
@torch.no_grad()
def test_pieces_padding_and_beams_change_nothing(mixers: str, positions: str) -> None:
    model: Any = language_model(mixers, positions=positions, **MODERN)
    long, short = tokens(1, 7), tokens(1, 3, seed=2)
    options: dict[str, Any] = {"max_new_tokens": 5, "do_sample": False}
    expected = [model.generate(prompt, use_cache=False, **options)[0, prompt.shape[1] :] for prompt in (long, short)]
    batch = torch.cat([long, torch.cat([tokens(1, 4, seed=9), short], 1)])
    mask = torch.ones(2, 7, dtype=torch.long)
    mask[1, :4] = 0
    for pieces in ({}, {"prefill_chunk_size": 3}):
        assert torch.equal(
            model.generate(batch, attention_mask=mask, **options, **pieces)[:, 7:], torch.stack(expected)
        )
    beams = {"num_beams": 3, "num_return_sequences": 2, **options}
    assert torch.equal(model.generate(long, **beams), model.generate(long, use_cache=False, **beams))


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing_gives_the_same_gradients(reentrant: bool) -> None:
    model = language_model("hybrid", **MODERN).train()
    expected = gradients(model, tokens(2, 6))
    assert not [name for name, weight in model.named_parameters() if weight.requires_grad and name not in expected]
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    for name, gradient in gradients(model, tokens(2, 6)).items():
        torch.testing.assert_close(gradient, expected[name], **CLOSE)


def test_adapters_find_the_projections_by_their_usual_names() -> None:
    peft = pytest.importorskip("peft", reason="peft is not installed: pip install peft")
    model = language_model("hybrid", **MODERN)
    before = model(tokens(2, 6)).logits
    names = ["q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj"]
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=names, task_type="CAUSAL_LM"))
    trained = [name for name, parameter in adapted.named_parameters() if parameter.requires_grad]
    assert len(trained) == 2 * 2 * len(names)  # two matrices, two layers
    torch.testing.assert_close(adapted(tokens(2, 6)).logits, before)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no such block": ({"block": "post"}, r"^block must be one of 'paper', 'modern', not 'post'$"),
    "norms elsewhere": ({"block": "modern", "norm": "post"}, r"^norm of the modern block must be one of 'pre', not"),
    "no SwiGLU": ({"block": "modern", "hidden_act": "gelu"}, r"^hidden_act of the modern block must be one of 'silu'"),
    "SwiGLU alone": (
        {"hidden_act": "silu"},
        r"^hidden_act of the paper block must be one of 'gelu', 'relu', not 'silu'$",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_block_that_is_not_is_refused_in_one_line(name: str) -> None:
    options, words = BAD[name]
    with pytest.raises(ValueError, match=words):
        MomentumConfig(**options)


def test_sizes_say_what_is_inside() -> None:
    block: Any = config(block="modern", intermediate_size=60).encoder().blocks[0]
    assert isinstance(block.feedforward, GatedFeedForward)
    assert block.feedforward.leave.in_features == 40  # two thirds
    assert isinstance(block.attention_norm, nn.RMSNorm)
    assert config(block="modern").hidden_act == "silu"
    assert config().hidden_act == "gelu"


def test_a_block_of_ones_own_says_why_it_cannot_be_exported() -> None:
    class Mixed(ModernBlock):
        def build_norm(self, width: int) -> nn.Module:
            return nn.LayerNorm(width)

    model = LanguageModel(11, Encoder(1, 16, 2, block=Mixed()), tied=True)
    with pytest.raises(ValueError, match="a block of LayerNorm and GatedFeedForward has no counterpart"):
        to_transformers(model, [MomentumAttention()], PlainResidual())
