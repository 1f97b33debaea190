"""Reformer as a mixer: hashing attention with shared queries and keys."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..context import refuse_split
from ..ops.lsh import lsh_attention
from .parts import WithParts, with_parts
from .short_convolution import ShortConvolution
from .situation import Mix, Situation


@dataclass(frozen=True)
class ReformerAttention:
    """LSH attention: tokens see those with the same hash value. Of q, k and v, k is not used.

    Args:
        buckets: hash values, an even number.
        rounds: hashes, each with its own random directions.
        chunk_size: tokens of the sorted sequence that see each other, and those of the chunk before.
        convolution: of q, k and v, before they mix; None for none.

    Examples:
        >>> encoder = Encoder(2, 16, 2, attention=ReformerAttention(buckets=8))
    """

    uses_keys: ClassVar[bool] = False

    buckets: int = 32
    rounds: int = 4
    chunk_size: int = 32
    convolution: ShortConvolution | None = None

    def __post_init__(self) -> None:
        if self.buckets < 2 or self.buckets % 2:
            raise ValueError(f"buckets must be even and 2 or more, not {self.buckets}")
        if self.rounds < 1 or self.chunk_size < 1:
            raise ValueError(f"rounds and chunk_size must be 1 or more, not {self.rounds} and {self.chunk_size}")

    def build(self, width: int, heads: int) -> Mix:
        built = with_parts(self, width, heads, self.convolution)
        if isinstance(built, WithParts) and built.convolution is not None:
            built.convolution.key.requires_grad_(False)  # nobody reads k
        return built

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, at: Situation) -> tuple[Tensor, Any]:
        at.refuse_reset("ReformerAttention")
        refuse_split("Reformer")
        if at.state is not None or at.return_state:
            raise ValueError(
                "ReformerAttention has no state: which tokens share a chunk depends on the whole sequence; "
                "call the encoder on the whole prefix instead"
            )
        rotations = torch.randn(self.rounds, q.shape[-1], self.buckets // 2, dtype=q.dtype, device=q.device)
        mask = None if at.key_mask is None else at.key_mask[:, None, :]
        return lsh_attention(q, v, rotations, chunk_size=self.chunk_size, causal=at.causal, mask=mask), None
