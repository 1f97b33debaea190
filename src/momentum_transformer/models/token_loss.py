"""Cross-entropy over a vocabulary with one exponential a logit, backward pass included; and its best guess."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class _TokenLoss(torch.autograd.Function):
    """-mean log softmax(logits)[label]; its gradient is (softmax(logits) - one-hot(label))/n."""

    @staticmethod
    def forward(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        p = logits.softmax(-1)
        # log Σ exp, from the largest logit, whose p is never small
        total = logits.amax(-1) - p.amax(-1).log()
        return (total - logits.gather(-1, labels[:, None])[:, 0]).mean(), p

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)  # p gets none, and none is made for it
        ctx.save_for_backward(output[1], inputs[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: None) -> tuple[Tensor, None]:
        p, labels = ctx.saved_tensors
        scale = grad / len(labels)
        difference = p * scale
        difference[torch.arange(len(labels), device=labels.device), labels] -= scale
        return difference, None


def token_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean cross-entropy of logits (n, V) at labels (n,), as `torch.nn.functional.cross_entropy` has it."""
    if logits.ndim != 2 or labels.shape != logits.shape[:1] or not len(labels):
        raise ValueError(
            f"logits and labels must have shapes (n, V) and (n,) with n of 1 or more, not {tuple(logits.shape)} and "
            f"{tuple(labels.shape)}"
        )
    loss: Tensor = _TokenLoss.apply(logits, labels)[0]
    return loss


def most_likely(logits: Tensor) -> Tensor:
    """argmax over the vocabulary; on a CPU NumPy's, which takes a tenth of the time of PyTorch's."""
    if logits.device.type == "cpu" and logits.dtype in (torch.float32, torch.float64):
        return torch.from_numpy(np.asarray(logits.detach().numpy().argmax(-1)))
    return logits.argmax(-1)
