"""A compiled model of Transformers on our kernels says what Transformers says."""

import pytest
import torch

pytest.importorskip("transformers", reason="the extra hf is not installed", minversion="5")
from momentum_transformer.hf import accelerate
from tests.compiled.marks import COMPILED
from tests.hf.small_models import VOCABULARY, small_model

pytestmark = COMPILED


@pytest.mark.parametrize("architecture", ["qwen3_next", "kimi_linear", "mamba2"])
@torch.no_grad()
def test_a_compiled_model_says_the_same(architecture: str) -> None:
    ids = torch.randint(2, VOCABULARY, (2, 30))
    expected = small_model(architecture)(ids).logits
    compiled = torch.compile(accelerate(small_model(architecture)), backend="eager")
    assert torch.allclose(compiled(ids).logits, expected, rtol=0, atol=1e-4 * float(expected.abs().max()))
