"""Transformers' Trainer on a linear-time language model: python examples/trainer.py [STEPS [FOLDER]]

Needs the extra `hf`, and accelerate, which the Trainer asks for.
"""

import sys
from typing import Any

import torch
from transformers import Trainer, TrainingArguments

from momentum_transformer.hf import MomentumConfig, MomentumForCausalLM

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100
folder = sys.argv[2] if len(sys.argv) > 2 else "trainer-output"

torch.manual_seed(0)
words = torch.randint(10, (256, 8))
rows = torch.cat([words, torch.full((256, 1), 10), words], 1)  # a word, a separator, and the word again
data = [{"input_ids": row, "labels": row} for row in rows]

config = MomentumConfig(
    vocab_size=11,
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=128,
    mixers="gated-delta",
)
model = MomentumForCausalLM(config)
arguments = TrainingArguments(
    folder,
    max_steps=steps,
    per_device_train_batch_size=32,
    learning_rate=3e-3,
    logging_steps=max(1, steps // 5),
    save_strategy="no",
    report_to=[],
    use_cpu=not torch.cuda.is_available(),
    dataloader_pin_memory=torch.cuda.is_available(),
)
trainer = Trainer(model=model, args=arguments, train_dataset=data)
trainer.train()
trainer.save_model(folder)

again: Any = MomentumForCausalLM.from_pretrained(folder)  # constant memory a token in generate
written = again.generate(rows[:1, :9], max_new_tokens=8, do_sample=False)
print(f"asked to repeat {rows[0, :8].tolist()}: {written[0, 9:].tolist()}")
