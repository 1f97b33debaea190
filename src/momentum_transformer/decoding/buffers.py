"""The activations of one token, in buffers that all layers share."""

import torch
from torch import Tensor


class Buffers:
    """Buffers for a batch of rows like x (b, width)."""

    def __init__(self, x: Tensor, hidden: int) -> None:
        self.x = x  # the residual stream: what a block reads and writes
        self.normed = torch.empty_like(x)  # x after a norm inside the block
        self.attended = torch.empty_like(x)  # what a mixer returns
        self.opened = torch.empty_like(x)  # the logits of an output gate that is the product of two matrices
        self.hidden = x.new_empty(len(x), hidden)  # inside the feed-forward network
        self.factor = torch.empty_like(self.hidden)  # what a gated one multiplies it by
        self.change = torch.empty_like(x)  # what the feed-forward network returns
        self.velocity = torch.empty_like(x)
        # double buffer: the attention updates of this layer and of the one before
        self.updates = (torch.empty_like(x), torch.empty_like(x))
        self._projected: dict[int, Tensor] = {}

    def projected(self, columns: int) -> Tensor:
        """(b, columns) for what attention projects x to; mixers differ in how much that is."""
        if columns not in self._projected:
            self._projected[columns] = self.x.new_empty(len(self.x), columns)
        return self._projected[columns]
