"""One graph for every length: python examples/export.py

torch.export turns a model into a program that runs without its Python code; batch and length stay free.
"""

import torch
from torch.export import Dim, export

from momentum_transformer import Encoder, LanguageModel, MomentumAttention

torch.manual_seed(0)
encoder = Encoder(2, 64, 4, attention=MomentumAttention(beta=0.6), norm="pre", activation="gelu")
model = LanguageModel(50, encoder).eval()

batch, length = Dim("batch", min=1, max=64), Dim("length", min=2, max=100_000)
program = export(model, (torch.randint(50, (3, 20)),), dynamic_shapes=({0: batch, 1: length},))
exported = program.module()
for shape in ((1, 2), (2, 33), (5, 700)):
    tokens = torch.randint(50, shape)
    with torch.no_grad():
        same = torch.allclose(exported(tokens), model(tokens), atol=1e-4)
    print(f"{shape[0]} texts of {shape[1]} tokens: the same logits: {same}")
# torch.export.save(program, "model.pt2") writes it; torch.export.load reads it where momentum_transformer is installed
