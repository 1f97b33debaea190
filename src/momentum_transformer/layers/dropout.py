"""Dropout that spends 16 random bits on a feature: on a CPU, drawing is most of what dropout costs."""

import torch
from torch import Tensor, nn

LEVELS = 2**16


class Dropout(nn.Module):
    """`nn.Dropout`, with the rate rounded to a multiple of 2⁻¹⁶; random numbers come from PyTorch's generator."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        if not 0 <= rate < 1:
            raise ValueError(f"dropout must be in [0, 1), not {rate}")
        self.dropped = min(round(rate * LEVELS), LEVELS - 1)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.dropped == 0:
            return x
        words = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device=x.device).random_(-(2**63), None)
        kept = words.view(torch.int16)[: x.numel()].view(x.shape) >= self.dropped - LEVELS // 2
        return x * kept.to(x.dtype).mul_(LEVELS / (LEVELS - self.dropped))

    def extra_repr(self) -> str:
        return f"{self.dropped / LEVELS:.4g}"
