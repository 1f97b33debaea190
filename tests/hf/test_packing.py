"""Our models keep packed documents apart however they are told of, and take padding for what it is."""

from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'momentum-transformer[hf]'")

from .small import MIXERS, language_model, tokens

CLOSE = {"rtol": 1e-10, "atol": 1e-10}
TOLD: dict[str, dict[str, Tensor]] = {
    "boundaries": {"cu_seq_lens_q": torch.tensor([0, 5, 9], dtype=torch.int32)},
    "numbers": {"seq_idx": torch.tensor([[0, 0, 0, 0, 0, 1, 1, 1, 1]], dtype=torch.int32)},
    "positions": {"position_ids": torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 3]])},
}
PADDED = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 0, 1, 1, 0]])


@pytest.mark.parametrize("positions", ["none", "added-sinusoidal", "learned"])
@pytest.mark.parametrize("told", TOLD)
@torch.no_grad()
def test_documents_are_told_apart(told: str, positions: str) -> None:
    model = language_model("hybrid", positions=positions)
    ids = tokens(1, 9)
    expected = torch.cat([model(ids[:, :5]).logits, model(ids[:, 5:]).logits], 1)
    out = model(ids, **TOLD[told])
    torch.testing.assert_close(out.logits, expected, **CLOSE)
    assert out.past_key_values is None


@pytest.mark.parametrize("filler", [0, 1])
@pytest.mark.parametrize("mixers", MIXERS)
@torch.no_grad()
def test_positions_of_padding_are_no_documents(mixers: str, filler: int) -> None:
    model, ids = language_model(mixers), tokens(2, 6)
    places = (PADDED.cumsum(1) - 1).masked_fill(PADDED == 0, filler)
    for use_cache in (None, True, False):
        out = model(ids, attention_mask=PADDED, position_ids=places, use_cache=use_cache)
        assert (out.past_key_values is None) == (use_cache is False)
        for row, real in enumerate(PADDED.bool()):
            torch.testing.assert_close(out.logits[row, real], model(ids[row : row + 1, real]).logits[0], **CLOSE)


@torch.no_grad()
def test_padded_prompts_with_positions_are_written_on() -> None:
    model, ids = language_model(positions="learned"), tokens(2, 6)
    mask = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]])
    places = (mask.cumsum(1) - 1).masked_fill(mask == 0, 1)
    options: dict[str, Any] = {"max_new_tokens": 4, "do_sample": False, "attention_mask": mask}
    assert torch.equal(model.generate(ids, position_ids=places, **options), model.generate(ids, **options))


@torch.no_grad()
def test_a_document_whose_first_token_does_not_exist_is_one() -> None:
    model, ids = language_model(), tokens(1, 9)
    mask = torch.ones(1, 9)
    mask[0, 5] = 0
    found = model(ids, attention_mask=mask, **TOLD["positions"]).logits
    torch.testing.assert_close(found[:, 6:], model(ids[:, 6:]).logits, **CLOSE)


@torch.no_grad()
def test_learned_positions_end_in_one_line() -> None:
    model = language_model(positions="learned", max_position_embeddings=4)
    with pytest.raises(ValueError, match="end at max_position_embeddings=4, and a token stands at place 4"):
        model(tokens(1, 5))
