"""A call of an accelerated model is right or refused in one line: pickles, caches of others, packed documents."""

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers", reason="the extra hf is not installed", minversion="5")
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

from momentum_transformer.backend.choose import backends
from momentum_transformer.hf import accelerate, restore

from .small_models import small_model
from .test_accelerate import NEAR, distance, pair, quiet, tokens

pytestmark = [
    pytest.mark.skipif(not backends()[0].available, reason=f"no native kernels: {backends()[0].reason}"),
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*:FutureWarning"),
]
__all__ = ["quiet"]
PACKED = {
    "cu_seq_lens_q": torch.tensor([0, 4, 9], dtype=torch.int32),
    "position_ids": torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4]]),
}
COUNTED = """
import pickle, sys, torch
from momentum_transformer.hf import gated_delta, lightning
calls = []
for module in (gated_delta, lightning):
    def counted(*args, module=module, ours=module.recurrent_attention, **options):
        calls.append(module.__name__.rpartition(".")[2])
        return ours(*args, **options)
    module.recurrent_attention = counted
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        model = pickle.load(file)
    with torch.no_grad():
        model(torch.arange(5)[None])
print(*calls)
"""


def test_a_pickle_is_accelerated_in_a_new_process_from_its_first_call(tmp_path: Path) -> None:
    paths = []
    for architecture in ("qwen3_next", "minimax"):
        paths.append(tmp_path / architecture)
        paths[-1].write_bytes(pickle.dumps(accelerate(small_model(architecture))))
    said = subprocess.run([sys.executable, "-c", COUNTED, *paths], check=True, capture_output=True, text=True)
    assert said.stdout.split() == ["gated_delta", "lightning"]


@pytest.mark.parametrize("architecture", ["qwen3_next", "bamba", "kimi_linear", "minimax", "mamba2"])
def test_packed_documents_beside_a_cache_are_refused(architecture: str) -> None:
    _, ours = pair(architecture)
    with pytest.raises(ValueError, match="cu_seq_lens_q needs use_cache=False"):
        ours(tokens(1, 9), **PACKED, use_cache=True)


@pytest.mark.parametrize("architecture", ["granitemoehybrid", "glm5_next"])
def test_packed_documents_are_refused_where_softmax_layers_do_not_part_them(architecture: str) -> None:
    _, ours = pair(architecture)
    with pytest.raises(ValueError, match="Transformers does not part documents in its softmax layers"):
        ours(tokens(1, 9), **PACKED, use_cache=False)


@pytest.mark.parametrize("change", [{"position_ids": None}, {"attention_mask": torch.ones(1, 9)}])
def test_packed_documents_that_softmax_layers_would_mix_are_refused(change: dict[str, Any]) -> None:
    _, ours = pair("qwen3_next")
    with pytest.raises(ValueError, match="cu_seq_lens_q needs position_ids that begin again at each document"):
        ours(tokens(1, 9), **{**PACKED, **change}, use_cache=False)


@pytest.mark.parametrize(
    ("boundaries", "words"), [([0, 4], "it must end at 9, not 4"), ([], "takes a tensor of whole numbers")]
)
def test_boundaries_that_do_not_fit_are_named(boundaries: list[int], words: str) -> None:
    _, ours = pair("mamba2")
    with pytest.raises(ValueError, match=words):
        ours(tokens(1, 9), cu_seq_lens_q=torch.tensor(boundaries, dtype=torch.int32), use_cache=False)


@torch.no_grad()
def test_what_a_call_hands_on_is_forgotten_after_it() -> None:
    theirs, ours = pair("mamba2")
    ids = tokens(1, 9)
    with pytest.raises(ValueError, match="cu_seqlens packs documents into one row"):
        ours(ids, cu_seq_lens_q=torch.tensor([0, 4]), use_cache=False)
    expected = theirs(ids).logits
    assert distance(ours(ids).logits, expected) < NEAR
    packed = ours(ids, **PACKED, use_cache=False).logits
    assert distance(packed[:, :4], expected[:, :4]) < NEAR
    assert distance(packed[:, 4:], theirs(ids[:, 4:]).logits) < NEAR
    model = restore(accelerate(small_model("mamba2")))
    assert torch.equal(model(ids, **PACKED, use_cache=False).logits, expected)


@pytest.mark.parametrize("architecture", ["mamba2", "bamba", "minimax"])
def test_gradients_go_through_a_call_with_a_cache(architecture: str) -> None:
    name = "cache_params" if architecture == "mamba2" else "past_key_values"
    ids, grads = tokens(1, 9), []
    for model in pair(architecture):
        kept = model(ids[:, :5], use_cache=True)[name]
        model(ids[:, 5:], **{name: kept}).logits.sum().backward()
        grads.append({key: x.grad.clone() for key, x in model.named_parameters() if x.grad is not None})
        model.zero_grad(set_to_none=True)
    assert grads[0].keys() == grads[1].keys()
    assert all(distance(grads[1][key], x) < 10 * NEAR for key, x in grads[0].items() if x.abs().max() > 0)


def llama() -> Any:
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2}
    return AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", **sizes, vocab_size=61))


OTHERS = {
    "heads of keys": (lambda: small_model("qwen3_next", linear_num_key_heads=2), "layer 0 has convolutions"),
    "width of softmax": (lambda: small_model("qwen3_next", head_dim=32), "layer 1 has keys"),
    "a model of softmax": (llama, "layer 0 is linear attention, and the cache holds a DynamicLayer"),
    "a model of linear attention": (
        lambda: small_model("mamba2", num_heads=2, head_dim=64, state_size=64),
        "layer 0 has|layer 1 is softmax attention, and the cache holds a LinearAttentionLayer",
    ),
}


@pytest.mark.parametrize("other", OTHERS)
@torch.no_grad()
def test_a_cache_of_another_model_is_one_line_and_stays_as_it_is(other: str) -> None:
    _, ours = pair("qwen3_next")
    make, words = OTHERS[other]
    made = make()(tokens(1, 9), use_cache=True)
    kept = made.get("past_key_values", made.get("cache_params"))
    before = contents(kept)
    for call in (ours, ours.model):
        with pytest.raises(ValueError, match=f"this cache is of another model.*({words})"):
            call(tokens(1, 1), past_key_values=kept)
    after = contents(kept)
    assert before
    assert all(torch.equal(x, y) for x, y in zip(before, after, strict=True))


def contents(cache: DynamicCache) -> list[torch.Tensor]:
    """Copies of all that a cache holds."""
    found: list[torch.Tensor] = []
    for layer in cache.layers:
        for part in vars(layer).values():
            each = part.values() if isinstance(part, dict) else (part,)
            found += [x.clone() for x in each if isinstance(x, torch.Tensor)]
    return found


NO_MODELS = [("gpt2", "a str"), (torch.nn.Linear, "the class Linear"), (AutoConfig.for_model("gpt2"), "a GPT2Config")]


@pytest.mark.parametrize(("thing", "words"), NO_MODELS)
def test_what_is_no_model_is_refused(thing: Any, words: str) -> None:
    with pytest.raises(ValueError, match=f"accelerate takes a model, .*, not {words}"):
        accelerate(thing)
