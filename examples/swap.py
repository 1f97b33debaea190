"""Linear-time attention in a model that was written for PyTorch's own: python examples/swap.py

Two imports change. Below each stands what it replaces.
"""

import torch
from torch import Tensor, nn

from momentum_transformer import GatedDeltaAttention
from momentum_transformer.nn import TransformerEncoder, TransformerEncoderLayer, scaled_dot_product_attention

# from torch.nn import TransformerEncoder, TransformerEncoderLayer
# from torch.nn.functional import scaled_dot_product_attention


class Tagger(nn.Module):
    """Your model, unchanged."""

    def __init__(self, vocabulary: int, tags: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 64)
        layer = TransformerEncoderLayer(64, 4, dim_feedforward=128, batch_first=True, norm_first=True)
        self.encoder = TransformerEncoder(layer, num_layers=2, norm=nn.LayerNorm(64))
        self.tags = nn.Linear(64, tags)

    def forward(self, tokens: Tensor, absent: Tensor) -> Tensor:
        return self.tags(self.encoder(self.embedding(tokens), src_key_padding_mask=absent))


class SelfAttention(nn.Module):
    """An attention layer of your own, unchanged: fewer heads of keys than of queries, causal order."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = nn.Linear(64, 64), nn.Linear(64, 32), nn.Linear(64, 32)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part(x).unflatten(-1, (-1, 16)).transpose(1, 2) for part in (self.query, self.key, self.value))
        y = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return y.transpose(1, 2).flatten(2)


torch.manual_seed(0)
tokens = torch.randint(100, (2, 10))
absent = torch.zeros(2, 10, dtype=torch.bool)
absent[1, 7:] = True  # the second text is shorter

tagger = Tagger(100, 5).eval()
whole = tagger(tokens, absent)
alone = tagger(tokens[1:, :7], absent[1:, :7])
print(f"padding changes nothing: {torch.allclose(whole[1:, :7], alone, atol=1e-5)}")
print(f"causal, grouped heads: {tuple(SelfAttention()(torch.randn(2, 10, 64)).shape)}")

# how tokens mix is one more argument of a layer
layer = TransformerEncoderLayer(64, 4, batch_first=True, attention=GatedDeltaAttention())
print(f"another mixer: {tuple(layer(torch.randn(2, 10, 64), is_causal=True).shape)}")
