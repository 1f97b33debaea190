"""One label a sequence, or a pair of sequences: the paper's models of Long Range Arena, and a baseline."""

from typing import Literal

import torch
from torch import Tensor, nn

from ..layers.dropout import Dropout
from ..layers.linear_layer import Linear
from ..ops.checks import check_choice
from .encoder import Encoder
from .summary import summary

Pool = Literal["tokens", "positions"]


class SequenceEncoder(nn.Module):
    """Tokens in, one vector a sequence out: embedding and learned positions added, an encoder, and a mean.

    Args:
        length: of the longest sequence.
        pool: "tokens" takes the mean over the tokens that exist. "positions" divides by the padded length instead, as
            the authors' released code does.
    """

    def __init__(self, vocabulary: int, encoder: Encoder, *, length: int, dropout: float, pool: Pool) -> None:
        super().__init__()
        check_choice("pool", pool, ("tokens", "positions"))
        self.length, self.pool = length, pool
        self.tokens = nn.Embedding(vocabulary, encoder.width)
        self.positions = nn.Embedding(length, encoder.width)
        for embedding in (self.tokens, self.positions):
            nn.init.normal_(embedding.weight, std=0.02)
        self.dropout = Dropout(dropout)
        self.encoder = encoder

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """tokens (b, n), and mask (b, n), False where there is none → (b, width)."""
        if tokens.ndim != 2 or tokens.is_floating_point() or not 1 <= tokens.shape[1] <= self.length:
            raise ValueError(
                f"tokens must be whole numbers of shape (batch, 1 … {self.length}), not {tokens.dtype} of shape "
                f"{tuple(tokens.shape)}"
            )
        n = tokens.shape[1]
        x = self.dropout(self.tokens(tokens) + self.positions.weight[:n])
        return pooled(self.encoder(x, key_mask=mask), mask, self.pool)


def pooled(y: Tensor, mask: Tensor | None, pool: Pool) -> Tensor:
    """The mean of y (b, n, width) over the tokens that exist, or their sum divided by n."""
    if mask is None:
        return y.mean(1)
    y = torch.where(mask[..., None], y, 0)
    divisor = mask.sum(1).clamp(min=1)[:, None] if pool == "tokens" else y.shape[1]
    return y.sum(1) / divisor


def head(features: int, hidden: int, classes: int) -> nn.Sequential:
    return nn.Sequential(Linear(features, hidden), nn.ReLU(), Linear(hidden, classes))


class SequenceClassifier(nn.Module):
    """Logits of the classes of a sequence.

    Args:
        vocabulary: how many tokens there are.
        classes: how many classes.
        encoder: usually one without causal order.
        length: tokens of the longest sequence.
        hidden: features between the mean over the sequence and the logits.
        dropout: of what enters the encoder, while training.
        pool: "tokens" takes the mean over the tokens that exist; "positions" divides by the padded length.

    Examples:
        >>> model = SequenceClassifier(256, 2, Encoder(2, 16, 2, causal=False), length=100)
        >>> logits = model(torch.randint(256, (3, 50)))
    """

    __repr__ = summary

    def __init__(
        self,
        vocabulary: int,
        classes: int,
        encoder: Encoder,
        *,
        length: int,
        hidden: int = 128,
        dropout: float = 0.0,
        pool: Pool = "tokens",
    ) -> None:
        super().__init__()
        self.sequence = SequenceEncoder(vocabulary, encoder, length=length, dropout=dropout, pool=pool)
        self.head = head(encoder.width, hidden, classes)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Logits of whole sequences.

        Args:
            tokens: (b, n).
            mask: (b, n) False where a token does not exist.

        Returns:
            Logits (b, classes).
        """
        logits: Tensor = self.head(self.sequence(tokens, mask))
        return logits


class PairClassifier(nn.Module):
    """Logits of the classes of a pair: one encoder for both, then the features a, b, a·b and a - b."""

    __repr__ = summary

    def __init__(
        self,
        vocabulary: int,
        classes: int,
        encoder: Encoder,
        *,
        length: int,
        hidden: int = 128,
        dropout: float = 0.0,
        pool: Pool = "tokens",
    ) -> None:
        super().__init__()
        self.sequence = SequenceEncoder(vocabulary, encoder, length=length, dropout=dropout, pool=pool)
        self.head = head(4 * encoder.width, hidden, classes)

    def forward(self, first: Tensor, first_mask: Tensor | None, second: Tensor, second_mask: Tensor | None) -> Tensor:
        a, b = self.sequence(first, first_mask), self.sequence(second, second_mask)
        logits: Tensor = self.head(torch.cat([a, b, a * b, a - b], -1))
        return logits


class BagOfTokens(nn.Module):
    """What can be known without order: logits are linear in how often each token occurs; of a pair, as above."""

    def __init__(self, vocabulary: int, classes: int, *, pair: bool = False) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.head = Linear(vocabulary * (4 if pair else 1), classes)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def frequencies(self, tokens: Tensor, mask: Tensor | None) -> Tensor:
        """(b, vocabulary), so scaled that a uniform text would have 1 everywhere."""
        real = torch.ones_like(tokens, dtype=torch.float32) if mask is None else mask.to(torch.float32)
        counts = torch.zeros(len(tokens), self.vocabulary, device=tokens.device).scatter_add(1, tokens, real)
        return counts * (self.vocabulary / real.sum(1, keepdim=True).clamp(min=1))

    def forward(
        self,
        first: Tensor,
        first_mask: Tensor | None = None,
        second: Tensor | None = None,
        second_mask: Tensor | None = None,
    ) -> Tensor:
        bag = self.frequencies(first, first_mask)
        if second is not None:
            other = self.frequencies(second, second_mask)
            bag = torch.cat([bag, other, bag * other, bag - other], -1)
        logits: Tensor = self.head(bag)
        return logits
