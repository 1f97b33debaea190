"""Optimizers by name, and gradient clipping by tensor (as the paper's protocol has it) or by global norm."""

import math
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from .config import TrainConfig
from .radam import RAdam

CYCLE_START = 1 / 25
CYCLE_BETA1 = (0.95, 0.85)


def make_optimizer(parameters: Iterable[nn.Parameter], config: TrainConfig) -> torch.optim.Optimizer:
    """RAdam and AdamW with decoupled weight decay, or Adam."""
    learned = [parameter for parameter in parameters if parameter.requires_grad]
    groups: list[dict[str, Any]] = [{"params": learned}]
    if config.decayed == "matrices":
        groups = [
            {"params": [parameter for parameter in learned if parameter.ndim >= 2]},
            {"params": [parameter for parameter in learned if parameter.ndim < 2], "weight_decay": 0.0},
        ]
    rate, betas, eps, decay = config.learning_rate, config.betas, config.epsilon, config.weight_decay
    if config.optimizer == "radam":
        return RAdam(
            groups, lr=rate, betas=betas, eps=eps, weight_decay=decay, decoupled_weight_decay=True, foreach=True
        )
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    return kind(groups, lr=rate, betas=betas, eps=eps, weight_decay=decay, fused=True)


@torch.no_grad()
def clip_gradients(parameters: Iterable[nn.Parameter], config: TrainConfig) -> None:
    """Scale down gradients longer than `clip_norm`: each tensor by itself, or all together."""
    found = [p.grad for p in parameters if p.grad is not None]
    gradients = [getattr(x, "_local_tensor", x) for x in found]  # of FSDP2: this process's share
    if config.clip == "none" or not gradients:
        return
    norms = torch.stack(torch._foreach_norm(gradients))
    if gradients[0] is not found[0]:
        squares = norms.square()
        dist.all_reduce(squares)
        norms = squares.sqrt()
    if config.clip == "global":
        norms = norms.norm().expand(len(gradients))
    scales = (config.clip_norm / (norms + 1e-6)).clamp(max=1)
    if scales.device.type != "cpu":
        torch._foreach_mul_(gradients, list(scales.unbind()))
        return
    for gradient, scale in zip(gradients, scales.tolist(), strict=True):
        if scale != 1:  # usually no gradient is longer than that
            gradient.mul_(scale)


def learning_rate(step: int, config: TrainConfig) -> float:
    """The rate for the step that comes after `step` steps."""
    if config.schedule == "drop" and step >= round(config.drop_at * config.steps):
        return config.learning_rate * config.drop_factor
    if config.schedule == "one-cycle":  # from 1/25 of the rate to all of it, and down to 1/250,000
        lowest = CYCLE_START * (1e-4 if _past_peak(step, config) else 1)
        return config.learning_rate * (lowest + (1 - lowest) * _height(step, config))
    if config.schedule == "cosine":  # up along a straight line, then down along half a wave
        rise = config.warmup * config.steps
        if step < rise:
            return config.learning_rate * (step + 1) / (rise + 1)
        done = (step - rise) / (config.steps - rise)
        return config.final_rate + (config.learning_rate - config.final_rate) * (1 + math.cos(math.pi * done)) / 2
    if config.schedule == "linear":
        return config.learning_rate + (config.final_rate - config.learning_rate) * step / config.steps
    return config.learning_rate


def betas(step: int, config: TrainConfig) -> tuple[float, float]:
    """The optimizer's β₁ and β₂ for the step that comes after `step` steps."""
    if config.schedule != "one-cycle" or not config.cycle_beta1:
        return config.betas
    high, low = CYCLE_BETA1
    return high + (low - high) * _height(step, config), config.betas[1]


def _height(step: int, config: TrainConfig) -> float:
    """The factor of a one-cycle schedule with straight flanks: 0 at both ends, 1 at the peak."""
    peak, end = _peak(config), config.steps - 1
    if _past_peak(step, config):
        return 1 - min(1.0, (step - peak) / (end - peak)) if end > peak else 0.0
    return step / peak if peak > 0 else 1.0


def _peak(config: TrainConfig) -> float:
    return max(config.warmup * config.steps - 1, 0.0)


def _past_peak(step: int, config: TrainConfig) -> bool:
    return step > _peak(config)
