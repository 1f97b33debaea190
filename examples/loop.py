"""A plain training loop, with nothing around PyTorch: python examples/loop.py [STEPS [FOLDER]]

Warm-up and cosine, clipping, no weight decay on norms and biases, a checkpoint from which the same command carries on.
"""

import math
import sys
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from momentum_transformer import Encoder, LanguageModel, MomentumAttention

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 300
folder = Path(sys.argv[2] if len(sys.argv) > 2 else "loop-checkpoint")
saved = folder / "state.pt"
symbols, length, batch = 10, 8, 32


def make_batch(step: int) -> torch.Tensor:
    """A word, a separator, and the word again; from the step alone, so that a run carries on where it stopped."""
    generator = torch.Generator().manual_seed(step)
    word = torch.randint(symbols, (batch, length), generator=generator)
    return torch.cat([word, torch.full((batch, 1), symbols), word], 1)


def groups(model: nn.Module) -> list[dict[str, object]]:
    matrices = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    others = [parameter for parameter in model.parameters() if parameter.ndim < 2]
    return [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]


def rate(step: int) -> float:
    warmup = steps // 10 + 1
    return min((step + 1) / warmup, 0.5 + 0.5 * math.cos(math.pi * step / steps))


torch.manual_seed(0)
encoder = Encoder(2, 64, 4, attention=MomentumAttention(beta=0.6), norm="pre", activation="gelu")
model = LanguageModel(symbols + 1, encoder)
optimizer = torch.optim.AdamW(groups(model), lr=3e-3)
first = 0
if saved.exists():
    state = torch.load(saved, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    first = state["step"]
    print(f"carrying on at step {first}")

for step in range(first, steps):
    for group in optimizer.param_groups:
        group["lr"] = 3e-3 * rate(step)
    tokens = make_batch(step)
    logits = model(tokens[:, :-1])[:, length:]  # only the second word can be known
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, length + 1 :].flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if (step + 1) % 50 == 0 or step == steps - 1:
        print(f"step {step + 1}: loss {loss.item():.4f}")
        folder.mkdir(parents=True, exist_ok=True)
        content = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
        torch.save(content, saved.with_suffix(".writing"))
        saved.with_suffix(".writing").replace(saved)  # a crash leaves the old checkpoint or the new one
