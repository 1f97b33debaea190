"""What the common model tests of Transformers claim of every model; its package does not ship them."""

from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'momentum-transformer[hf]'")

from transformers import AutoModelForCausalLM

from momentum_transformer.hf import MomentumForSequenceClassification
from tests.hf.small import MIXERS, VOCABULARY, config, language_model, tokens

GREEDY = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0}
LABELS = {
    "single_label_classification": torch.tensor([0, 2]),
    "multi_label_classification": torch.tensor([[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]]),
    "regression": torch.tensor([[0.1, 2.0, -1.0], [0.0, 0.5, 3.0]]),
}


@pytest.mark.parametrize("mixers", MIXERS)
@torch.no_grad()
def test_a_row_does_not_depend_on_the_others_of_its_batch(mixers: str) -> None:
    model, ids = language_model(mixers), tokens(3, 9)
    alone = torch.cat([model(row[None]).logits for row in ids])
    torch.testing.assert_close(model(ids).logits, alone)


@pytest.mark.parametrize("mixers", ["momentum", "gated delta", "hybrid"])
@torch.no_grad()
def test_generation_goes_on_from_embeddings_as_from_their_tokens(mixers: str) -> None:
    model, ids = language_model(mixers), tokens(2, 7)
    embedded = model.generate(inputs_embeds=model.get_input_embeddings()(ids), **GREEDY)
    assert torch.equal(embedded, model.generate(ids, **GREEDY)[:, 7:])


@torch.no_grad()
def test_what_generation_returns_is_what_a_call_returns() -> None:
    model, ids = language_model(), tokens(2, 7)
    wanted = {"output_logits": True, "output_hidden_states": True, "return_dict_in_generate": True}
    made = model.generate(ids, **GREEDY, **wanted)
    whole = model(made.sequences[:, :-1], output_hidden_states=True)
    torch.testing.assert_close(torch.stack(made.logits, 1), whole.logits[:, 6:].float(), check_dtype=False)
    last = torch.cat([step[-1][:, -1:] for step in made.hidden_states], 1)
    torch.testing.assert_close(last, whole.hidden_states[-1][:, 6:])
    more = model.generate(made.sequences, past_key_values=made.past_key_values, **GREEDY)
    assert torch.equal(more, model.generate(ids, **GREEDY | {"max_new_tokens": 8}))


def test_gradients_reach_the_hidden_states() -> None:
    output = language_model()(tokens(2, 7), output_hidden_states=True)
    for x in output.hidden_states:
        x.retain_grad()
    output.logits.square().sum().backward()
    assert all(x.grad is not None and x.grad.abs().sum() > 0 for x in output.hidden_states)


@pytest.mark.parametrize("problem", LABELS)
def test_a_classifier_has_the_loss_of_its_problem(problem: str) -> None:
    torch.manual_seed(0)
    model = MomentumForSequenceClassification(config("momentum", num_labels=3, problem_type=problem)).eval()
    output = model(tokens(2, 7), labels=LABELS[problem])
    losses = {
        "single_label_classification": torch.nn.functional.cross_entropy,
        "multi_label_classification": torch.nn.functional.binary_cross_entropy_with_logits,
        "regression": torch.nn.functional.mse_loss,
    }
    torch.testing.assert_close(output.loss, losses[problem](output.logits, LABELS[problem]))


def test_weights_of_another_size_are_refused_unless_they_may_start_afresh(tmp_path: Path) -> None:
    language_model().save_pretrained(tmp_path)
    with pytest.raises(RuntimeError, match="ignore_mismatched_sizes"):
        AutoModelForCausalLM.from_pretrained(tmp_path, vocab_size=VOCABULARY + 5)
    model = AutoModelForCausalLM.from_pretrained(tmp_path, vocab_size=VOCABULARY + 5, ignore_mismatched_sizes=True)
    assert model(tokens(1, 5)).logits.shape[-1] == VOCABULARY + 5
