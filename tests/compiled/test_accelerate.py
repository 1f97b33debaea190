"""A compiled model of Transformers on our kernels says what Transformers says."""

import os

import pytest
import torch

pytest.importorskip("transformers", reason="the extra hf is not installed", minversion="5")
from momentum_transformer.hf import accelerate
from tests.hf.small_models import VOCABULARY, small_model

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of PyTorch and Transformers themselves
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.skipif(os.environ.get("MOMENTUM_CHECK_SHAPES", "1") == "1", reason="needs MOMENTUM_CHECK_SHAPES=0"),
]


@pytest.mark.parametrize("architecture", ["qwen3_next", "kimi_linear", "mamba2"])
@torch.no_grad()
def test_a_compiled_model_says_the_same(architecture: str) -> None:
    ids = torch.randint(2, VOCABULARY, (2, 30))
    expected = small_model(architecture)(ids).logits
    compiled = torch.compile(accelerate(small_model(architecture)), backend="eager")
    assert torch.allclose(compiled(ids).logits, expected, rtol=0, atol=1e-4 * float(expected.abs().max()))
