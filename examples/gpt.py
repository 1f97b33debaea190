"""A language model of bytes in 40 lines: python examples/gpt.py [STEPS [TEXT]]"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812

from momentum_transformer import Encoder, GatedDeltaAttention, LanguageModel

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 500
content = Path(sys.argv[2] if len(sys.argv) > 2 else __file__).read_bytes()
text = torch.frombuffer(bytearray(content), dtype=torch.uint8).long()
batch, context = 12, 64
torch.manual_seed(0)
encoder = Encoder(4, 128, 4, attention=GatedDeltaAttention(), norm="pre", activation="gelu")
model = LanguageModel(256, encoder, positions=False)  # a recurrence knows what came before what
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
print(model)

for step in range(steps):
    starts = torch.randint(len(text) - context, (batch, 1))
    window = text[starts + torch.arange(context + 1)]
    loss = F.cross_entropy(model(window[:, :-1]).flatten(0, 1), window[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 50 == 0 or step == steps - 1:
        print(f"step {step}: {loss.item() / 0.6931:.3f} bits/byte")

with torch.no_grad():
    model.eval()
    logits, state = model.prefill(text[None, :8])  # reads the prompt
    logits, written = logits[:, -1], text[:8].tolist()
    for _ in range(200):  # every byte takes the same time and memory, however long the text has become
        token = torch.multinomial((logits / 0.8).softmax(-1), 1)[:, 0]
        written.append(int(token))
        logits, state = model.step(token, state)
print(bytes(written).decode(errors="replace"))
