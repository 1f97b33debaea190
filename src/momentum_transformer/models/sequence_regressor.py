"""Numbers in, one number at every token out."""

import torch
from torch import Tensor, nn

from ..layers.linear_layer import Linear
from ..layers.positions import positions_of, sinusoids
from .encoder import Encoder
from .summary import summary


class SequenceRegressor(nn.Module):
    """A linear embedding and fixed positions, half of the width each, side by side; then a causal encoder.

    With `positions=False` the embedding has the whole width.
    """

    __repr__ = summary

    def __init__(self, features: int, encoder: Encoder, *, positions: bool = True) -> None:
        super().__init__()
        if not encoder.causal:
            raise ValueError("a sequence regressor needs Encoder(causal=True)")
        self.positions = positions
        self.embedding = Linear(features, encoder.width // 2 if positions else encoder.width)
        self.encoder = encoder
        self.value = Linear(encoder.width, 1)

    def forward(self, inputs: Tensor) -> Tensor:
        """inputs (b, n, features) → (b, n)."""
        embedded = self.embedding(inputs)
        if self.positions:
            place = sinusoids(positions_of(inputs.shape[1], inputs.device), embedded.shape[-1])
            embedded = torch.cat([embedded, place.to(embedded.dtype).expand(len(embedded), -1, -1)], -1)
        return self.value(self.encoder(embedded)).squeeze(-1)
