"""Our models in Transformers trace as one graph, with gradients and without, and compute the same."""

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'momentum-transformer[hf]'")

from momentum_transformer.hf import MomentumForCausalLM
from tests.compiled.marks import COMPILED
from tests.hf.small import config, gradients, tokens
from tests.hf.test_packing import TOLD

pytestmark = COMPILED


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize(("mixers", "block"), [("momentum", "paper"), ("gated delta", "paper"), ("hybrid", "modern")])
def test_a_compiled_model_learns_the_same(mixers: str, block: str, backend: str) -> None:
    torch.manual_seed(0)
    model = MomentumForCausalLM(config(mixers, block=block)).train()
    ids = tokens(2, 6)
    expected = gradients(model, ids)
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    for name, gradient in gradients(compiled, ids).items():
        torch.testing.assert_close(gradient, expected[name.removeprefix("_orig_mod.")], rtol=1e-3, atol=1e-5)


@torch.no_grad()
def test_a_compiled_hybrid_computes_the_same_with_padding() -> None:
    torch.manual_seed(0)
    model = MomentumForCausalLM(config("hybrid")).eval()
    ids, mask = tokens(2, 6), torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]])
    found = torch.compile(model, backend="eager", fullgraph=True)(ids, attention_mask=mask, use_cache=False).logits
    torch.testing.assert_close(found, model(ids, attention_mask=mask).logits, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("told", TOLD)
@torch.no_grad()
def test_a_compiled_model_keeps_packed_documents_apart(told: str) -> None:
    torch.manual_seed(0)
    model = MomentumForCausalLM(config("hybrid", initializer_range=0.5)).eval()
    ids = tokens(1, 9)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    expected = torch.cat([model(ids[:, :5]).logits, model(ids[:, 5:]).logits], 1)
    for options in ({"use_cache": False}, {}):
        torch.testing.assert_close(compiled(ids, **TOLD[told], **options).logits, expected, rtol=1e-4, atol=1e-5)
