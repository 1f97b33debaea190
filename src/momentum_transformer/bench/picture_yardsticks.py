"""What drawing a byte is held against: its bare matrix multiplications, and the encoder of fast-transformers."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (the field's name for it)
from torch import nn

from ..layers.block import Block, FeedForward
from ..layers.gates import Gate
from ..layers.parts import WithParts
from ..models.pixel_model import PixelModel


def plain(block: Block) -> FeedForward:
    assert isinstance(block.feedforward, FeedForward)
    return block.feedforward


def blocks(model: PixelModel) -> list[Block]:
    return [block for block in model.encoder.blocks if isinstance(block, Block)]


def matrices(model: PixelModel, batch: int) -> Callable[[], None]:
    """Only the matrix multiplications of one byte, as PyTorch does them: the bound that drawing is held against."""
    width = model.encoder.width
    x = torch.randn(batch, width)
    layers = []
    for block in blocks(model):
        attention, network = block.attention, plain(block)
        projections, inner = in_projections(block)
        weight = torch.cat([p.weight for p in projections])
        bias = torch.cat([torch.zeros(p.out_features) if p.bias is None else p.bias for p in projections])
        layers.append((weight, bias, inner, attention.out, network.enter, network.leave))
    hidden = torch.randn(batch, plain(blocks(model)[0]).enter.out_features)

    def multiply() -> None:
        for weight, bias, inner, out, enter, leave in layers:
            F.linear(x, weight, bias)
            if inner is not None:
                F.linear(x[:, : inner.in_features], inner.weight, inner.bias)
            F.linear(x, out.weight, out.bias)
            F.linear(x, enter.weight, enter.bias)
            F.linear(hidden, leave.weight, leave.bias)
        F.linear(x, model.mixture.weight, model.mixture.bias)

    return multiply


def in_projections(block: Block) -> tuple[list[nn.Linear], nn.Linear | None]:
    """What an attention layer multiplies x by, and the second matrix of a low-rank output gate."""
    attention, mixer = block.attention, block.attention.mixer
    found: list[nn.Linear] = [attention.query, attention.key, attention.value]
    if not isinstance(mixer, WithParts):
        return found, None
    found += [module.project for module in mixer.mix.modules() if isinstance(module, Gate)]  # type: ignore[attr-defined]
    gate = None if mixer.tail is None else mixer.tail.gate
    if isinstance(gate, nn.Sequential):
        return [*found, gate[0]], gate[1]  # type: ignore[list-item, return-value]
    return [*found, gate] if isinstance(gate, nn.Linear) else found, None


def peer(model: PixelModel, batch: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """The recurrent encoder of fast-transformers with linear attention, the same sizes, our embedding and mixture."""
    from fast_transformers.builders import RecurrentEncoderBuilder  # type: ignore[import-not-found]

    first = blocks(model)[0]
    heads, width = first.attention.heads, model.encoder.width
    encoder = RecurrentEncoderBuilder.from_kwargs(
        attention_type="linear",
        n_layers=len(model.encoder.blocks),
        n_heads=heads,
        query_dimensions=width // heads,
        value_dimensions=width // heads,
        feed_forward_dimensions=plain(first).enter.out_features,
        activation="relu",
    ).get()
    encoder.eval()
    memory: Any = None
    position = torch.zeros(batch, dtype=torch.long)

    def step(pixel: torch.Tensor) -> torch.Tensor:
        nonlocal memory
        y, memory = encoder(model.embed(pixel.long(), position), memory)
        parameters: torch.Tensor = model.mixture(y)
        return parameters

    return step
