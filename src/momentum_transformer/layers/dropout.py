"""Dropout that spends 16 random bits on a feature: on a CPU, drawing is most of what dropout costs."""

import torch
import torch.nn.functional as F  # noqa: N812 (the field's name for it)
from torch import Tensor, nn

from ..ops.tracing import eager

LEVELS = 2**16


class Dropout(nn.Module):
    """`nn.Dropout`, with the rate rounded to a multiple of 2⁻¹⁶; random numbers come from PyTorch's generator."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        if not 0 <= rate < 1:
            raise ValueError(f"dropout must be in [0, 1), not {rate}")
        self.rate = rate
        self.dropped = min(round(rate * LEVELS), LEVELS - 1)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.dropped == 0:
            return x
        if x.device.type != "cpu" or not eager(x):
            return F.dropout(x, self.dropped / LEVELS)
        words = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device=x.device).random_(-(2**63), None)
        bits = words.view(torch.int16)[: x.numel()].view(x.shape)
        # compared into the dtype of x: a tensor of bool in between takes four times as long
        kept = torch.ge(bits, self.dropped - LEVELS // 2, out=torch.empty(x.shape, dtype=x.dtype, device=x.device))
        return x * kept.mul_(LEVELS / (LEVELS - self.dropped))

    def extra_repr(self) -> str:
        return f"{self.dropped / LEVELS:.4g}"
