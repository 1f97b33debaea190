"""Optimizers by name, and gradient clipping by tensor (as the paper's protocol has it) or by global norm."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from .config import TrainConfig


def make_optimizer(parameters: Iterable[nn.Parameter], config: TrainConfig) -> torch.optim.Optimizer:
    """RAdam and AdamW with decoupled weight decay, or Adam."""
    parameters = list(parameters)
    rate, betas, decay = config.learning_rate, config.betas, config.weight_decay
    if config.optimizer == "radam":
        return torch.optim.RAdam(
            parameters, lr=rate, betas=betas, weight_decay=decay, decoupled_weight_decay=True, foreach=True
        )
    if config.optimizer == "adamw":
        return torch.optim.AdamW(parameters, lr=rate, betas=betas, weight_decay=decay, foreach=True)
    return torch.optim.Adam(parameters, lr=rate, betas=betas, weight_decay=decay, foreach=True)


@torch.no_grad()
def clip_gradients(parameters: Iterable[nn.Parameter], config: TrainConfig) -> None:
    """Scale down what is longer than `clip_norm`: each tensor by itself, or all together."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    if config.clip == "none" or not gradients:
        return
    norms = torch.stack(torch._foreach_norm(gradients))
    if config.clip == "global":
        norms = norms.norm().expand(len(gradients))
    scales: list[Tensor] = list((config.clip_norm / (norms + 1e-6)).clamp(max=1).unbind())
    torch._foreach_mul_(gradients, scales)


def learning_rate(step: int, config: TrainConfig) -> float:
    """The rate for the step that comes after `step` steps."""
    if config.schedule == "drop" and step >= round(config.drop_at * config.steps):
        return config.learning_rate * config.drop_factor
    return config.learning_rate
