"""Our models learn in Transformers' ways: its Trainer, gradient checkpointing, adapters, compiled."""

from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'momentum-transformer[hf]'")

from momentum_transformer.hf import MomentumForCausalLM, MomentumForSequenceClassification

from .small import MIXERS, VOCABULARY, config, gradients, language_model, tokens


@pytest.mark.parametrize("mixers", ["momentum", "hybrid"])
@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing_gives_the_same_gradients(mixers: str, reentrant: bool) -> None:
    model = language_model(mixers, residual={"name": "momentum", "beta": 0.3}).train()
    expected = gradients(model, tokens(2, 6))
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    assert model.model.encoder.gradient_checkpointing
    found = gradients(model, tokens(2, 6))
    model.gradient_checkpointing_disable()
    assert not model.model.encoder.gradient_checkpointing
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("mixers", MIXERS)
def test_every_weight_has_a_gradient(mixers: str) -> None:
    model = language_model(mixers).train()
    found = gradients(model, tokens(2, 6))
    for name, parameter in model.named_parameters():
        assert not parameter.requires_grad or name in found, name
    assert model(tokens(1, 3)).past_key_values is None  # nobody pays for a cache while training


def test_the_trainer_trains_saves_and_goes_on(tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="accelerate is not installed: Transformers' Trainer needs it")
    from transformers import Trainer, TrainingArguments

    torch.manual_seed(0)
    lines = [{"input_ids": row, "labels": row} for row in tokens(1, 8).repeat(16, 1)]
    options: dict[str, Any] = {
        "learning_rate": 1e-2,
        "per_device_train_batch_size": 4,
        "report_to": [],
        "save_steps": 20,
        "logging_steps": 10,
        "disable_tqdm": True,
        "use_cpu": True,
        "dataloader_pin_memory": False,
    }
    model = MomentumForCausalLM(config("hybrid"))
    before = model(**{"input_ids": tokens(1, 8), "labels": tokens(1, 8)}).loss.item()
    trainer = Trainer(model=model, args=TrainingArguments(str(tmp_path), max_steps=20, **options), train_dataset=lines)
    trainer.train()
    loss = trainer.evaluate(lines)["eval_loss"]
    assert loss < 0.3 * before
    again = MomentumForCausalLM.from_pretrained(tmp_path / "checkpoint-20")
    carried_on = Trainer(
        model=again, args=TrainingArguments(str(tmp_path), max_steps=30, **options), train_dataset=lines
    )
    carried_on.train(resume_from_checkpoint=True)
    assert carried_on.state.global_step == 30
    assert carried_on.evaluate(lines)["eval_loss"] < loss


def test_a_classifier_learns_by_the_trainer(tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="accelerate is not installed: Transformers' Trainer needs it")
    from transformers import Trainer, TrainingArguments

    torch.manual_seed(0)
    model = MomentumForSequenceClassification(config("momentum", causal=False, initializer_range=0.5))
    ids = tokens(16, 5)
    lines = [{"input_ids": row, "labels": int(row[0] > VOCABULARY // 2)} for row in ids]
    arguments = TrainingArguments(
        str(tmp_path),
        max_steps=40,
        learning_rate=1e-2,
        per_device_train_batch_size=16,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=lines)
    trainer.train()
    assert trainer.evaluate(lines)["eval_loss"] < 0.1


def test_adapters_find_our_projections_by_their_usual_names(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft", reason="peft is not installed: pip install peft")
    model = language_model("hybrid")
    ids = tokens(2, 6)
    before = model(ids).logits
    names = ["q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj"]
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=names, task_type="CAUSAL_LM"))
    trained = [name for name, parameter in adapted.named_parameters() if parameter.requires_grad]
    assert len(trained) == 2 * 2 * len(names)  # two matrices, two layers
    torch.testing.assert_close(adapted(ids).logits, before)  # an adapter starts as nothing
    optimizer = torch.optim.Adam((p for p in adapted.parameters() if p.requires_grad), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        adapted(ids, labels=ids).loss.backward()
        optimizer.step()
    changed = adapted(ids).logits
    assert not torch.allclose(changed, before, atol=1e-3)
    adapted.save_pretrained(tmp_path)
    again = peft.PeftModel.from_pretrained(language_model("hybrid"), tmp_path)
    torch.testing.assert_close(again(ids).logits, changed)
    torch.testing.assert_close(again.merge_and_unload()(ids).logits, changed)
