"""Which letter stands in the text more often? One label a sequence: python examples/classifier.py [STEPS]"""

import sys

import torch
import torch.nn.functional as F  # noqa: N812

from momentum_transformer import Encoder, MomentumAttention, SequenceClassifier

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 200
letters, longest = 4, 32


def examples(count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Tokens (count, longest), a mask that is False where there is none, and the most common of the letters."""
    tokens = torch.randint(letters, (count, longest))
    mask = torch.arange(longest) < torch.randint(8, longest + 1, (count, 1))
    counts = (F.one_hot(tokens, letters) * mask[..., None]).sum(1)
    return tokens, mask, counts.argmax(-1)


torch.manual_seed(0)
encoder = Encoder(2, 64, 4, attention=MomentumAttention(beta=0.6), causal=False, norm="pre", activation="gelu")
model = SequenceClassifier(letters, letters, encoder, length=longest)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
print(model)

for _ in range(steps):
    tokens, mask, labels = examples(64)
    loss = F.cross_entropy(model(tokens, mask), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

model.eval()
tokens, mask, labels = examples(500)
with torch.no_grad():
    accuracy = (model(tokens, mask).argmax(-1) == labels).float().mean()
print(f"accuracy {accuracy:.3f}; guessing: {1 / letters:.3f}")
