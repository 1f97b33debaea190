"""Pictures byte by byte: each byte from those before it, as a mixture of logistics; the paper's model of images."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..context import refuse_split
from ..layers.linear_layer import Linear
from ..layers.positions import sinusoids
from .encoder import Encoder, EncoderState
from .summary import summary

START = 256  # the symbol before the first byte


class PixelModelState(NamedTuple):
    encoder: EncoderState
    position: Tensor  # (b,)  of the byte that is drawn next


class PixelModel(nn.Module):
    """Byte embedding and fixed positions, half of the width each, side by side; then a causal encoder.

    A learned symbol comes before the first byte, so that every byte is predicted, and pictures can be drawn from
    nothing.

    Args:
        encoder: a causal one.
        length: bytes of a picture.
        mixtures: logistic distributions that a byte is a mixture of.

    Examples:
        >>> model, pixels = PixelModel(Encoder(2, 16, 2), length=64), torch.randint(256, (3, 64))
        >>> parameters = model(pixels)  # training: of every byte at once
        >>> parameters, state = model.prefill(pixels[:, :32])  # completing a picture
        >>> parameters, state = model.step(pixels[:, 32], state)  # drawing: constant time and memory per byte
    """

    __repr__ = summary

    def __init__(self, encoder: Encoder, *, length: int, mixtures: int = 10) -> None:
        super().__init__()
        if not encoder.causal:
            raise ValueError("a pixel model needs Encoder(causal=True)")
        if length < 1 or mixtures < 1:
            raise ValueError(f"length and mixtures must be 1 or more, not {length} and {mixtures}")
        half = encoder.width // 2
        self.length = length
        self.embedding = nn.Embedding(START + 1, half)
        self.encoder = encoder
        self.mixture = Linear(encoder.width, 3 * mixtures)
        self.places: Tensor
        self.register_buffer("places", sinusoids(torch.arange(length), encoder.width - half), persistent=False)

    def forward(self, pixels: Tensor) -> Tensor:
        """The distribution of each byte, given those before it.

        Args:
            pixels: bytes (b, n).

        Returns:
            Parameters (b, n, 3 · mixtures).
        """
        self._check(pixels, most=self.length)
        return self.mixture(self.encoder(self._embed(self._shifted(pixels)[:, :-1])))

    def prefill(self, pixels: Tensor) -> tuple[Tensor, PixelModelState]:
        """Read the beginning of a picture that is to be completed.

        Args:
            pixels: the first bytes (b, n).

        Returns:
            The pair of parameters (b, n + 1, 3 · mixtures), the last of them for the byte that comes next, and of the
            state from which `step` goes on.
        """
        self._check(pixels, most=self.length - 1)
        tokens = self._shifted(pixels)
        y, state = self.encoder(self._embed(tokens), return_state=True)
        position = torch.full((tokens.shape[0],), tokens.shape[1], device=tokens.device)
        return self.mixture(y), PixelModelState(state, position)

    def step(self, pixel: Tensor | None, state: PixelModelState) -> tuple[Tensor, PixelModelState]:
        """One more byte.

        Args:
            pixel: (b,), or None for the start of a picture.
            state: of `prefill`, of `initial_state`, or of the step before.

        Returns:
            The pair of parameters (b, 3 · mixtures) of the next byte, and of the state after this one.
        """
        token = torch.full_like(state.position, START) if pixel is None else pixel.long()
        y, after = self.encoder.step(self.embed(token, state.position), state.encoder)
        return self.mixture(y), PixelModelState(after, state.position + 1)

    def embed(self, token: Tensor, position: Tensor) -> Tensor:
        """What the encoder gets for one byte, or START, (b,) at its position (b,)."""
        return torch.cat([self.embedding(token), self._places(position)], -1)

    def initial_state(self, batch_size: int) -> PixelModelState:
        """The state before the start."""
        position = torch.zeros(batch_size, dtype=torch.long, device=self.places.device)
        return PixelModelState(self.encoder.initial_state(batch_size), position)

    def _shifted(self, pixels: Tensor) -> Tensor:
        refuse_split("a pixel model")
        return torch.cat([pixels.new_full((pixels.shape[0], 1), START, dtype=torch.long), pixels.long()], 1)

    def _embed(self, tokens: Tensor) -> Tensor:
        embedded = self.embedding(tokens)
        places = self._places(torch.arange(tokens.shape[1], device=tokens.device))
        return torch.cat([embedded, places.expand(tokens.shape[0], -1, -1)], -1)

    def _places(self, positions: Tensor) -> Tensor:
        return self.places[positions].to(self.embedding.weight.dtype)

    def _check(self, pixels: Tensor, *, most: int) -> None:
        if pixels.ndim != 2 or pixels.is_floating_point() or pixels.dtype == torch.bool:
            raise ValueError(f"pixels must be whole numbers (batch, n), not {tuple(pixels.shape)} of {pixels.dtype}")
        if pixels.shape[1] > most:
            raise ValueError(f"pixels must be at most {most} a picture here, not {pixels.shape[1]}")
