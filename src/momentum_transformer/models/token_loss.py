"""Cross-entropy over a vocabulary with one exponential a logit, backward pass included; and its best guess."""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..backend.products import linear, product
from ..ops.tracing import eager, transformed

LOGITS = 1 << 20  # so many at a time stay in the caches of a core


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
        ctx.set_materialize_grads(False)  # p has no gradient: autograd need not make zeros for it
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


class Guess(NamedTuple):
    """How well a model knows the tokens at n places, and what it takes them for."""

    loss: Tensor  # the mean cross-entropy
    tokens: Tensor  # (n,) the most likely ones


def guess(hidden: Tensor, embedding: Tensor, labels: Tensor) -> Guess:
    """`token_loss` and `most_likely` of the logits hidden · embeddingᵀ, which on a CPU are never there all at once.

    hidden is (n, width), embedding (V, width), labels (n,).
    """
    if not _in_blocks(hidden, embedding, labels):
        logits = linear(hidden, embedding)
        return Guess(token_loss(logits.float(), labels), most_likely(logits))
    loss, tokens = _Guess.apply(hidden, embedding, labels)
    return Guess(loss, tokens)


def _in_blocks(hidden: Tensor, embedding: Tensor, labels: Tensor) -> bool:
    """Whether these fit, and are plain numbers of a CPU; `token_loss` names shapes that do not fit."""
    if hidden.device.type != "cpu" or hidden.dtype not in (torch.float32, torch.float64):
        return False
    if not len(labels) or labels.shape != hidden.shape[:1]:
        return False
    return eager(hidden, embedding, labels) and not transformed() and not torch.is_autocast_enabled("cpu")


class _Guess(torch.autograd.Function):
    """Some rows at a time: logits, loss, and at once the gradients, for which the logits would have to be kept."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, embedding: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        learning = any(ctx.needs_input_grad)
        rows = max(64, LOGITS // len(embedding))
        losses, tokens, d_parts = [], [], []
        d_embedding = torch.zeros_like(embedding) if learning else None
        for first in range(0, len(labels), rows):
            part, wanted = hidden[first : first + rows], labels[first : first + rows, None]
            logits = product(part, embedding.T)
            found = most_likely(logits)
            tokens.append(found)
            p, best = logits.softmax(-1), found[:, None]
            losses.append(logits.gather(1, best) - p.gather(1, best).log() - logits.gather(1, wanted))
            if d_embedding is not None:
                p.scatter_add_(1, wanted, p.new_full((1, 1), -1).expand(len(p), 1))
                d_parts.append(product(p, embedding))
                d_embedding += product(p.T, part)
        ctx.save_for_backward(torch.cat(d_parts) if learning else None, d_embedding)
        ctx.count = len(labels)
        likely = torch.cat(tokens)
        ctx.mark_non_differentiable(likely)
        return torch.cat(losses).mean(), likely

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None]:
        d_hidden, d_embedding = ctx.saved_tensors
        scale = grad / ctx.count
        return d_hidden * scale, d_embedding * scale, None


def most_likely(logits: Tensor) -> Tensor:
    """argmax over the vocabulary; on a CPU NumPy's, which takes a tenth of the time of PyTorch's."""
    if logits.device.type == "cpu" and logits.dtype in (torch.float32, torch.float64) and eager(logits):
        return torch.from_numpy(np.asarray(logits.detach().numpy().argmax(-1)))
    return logits.argmax(-1)
