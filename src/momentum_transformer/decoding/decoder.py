"""A faster `Encoder.step` for generation: the same weights and results, without PyTorch between the layers.

q, k and v come from one matrix multiplication, weights are packed in the order in which they are read, buffers are
allocated once, states are updated in place, and a token is one call of the native kernels.
"""

import ctypes
from typing import Any

import torch
from torch import Tensor, nn

from ..backend.cpu.native_backend import status
from ..layers.block import Block
from ..models.encoder import Encoder, EncoderState
from ..ops.state import CacheState
from .program import TokenProgram
from .recorder import BlockRecorder, Buffers, can_record


def can_decode(encoder: Encoder) -> bool:
    """Whether `Decoder` serves this encoder; where not, `Encoder.step` does."""
    weight = next(encoder.parameters())
    if status() is not None or weight.device.type != "cpu" or weight.dtype not in (torch.float32, torch.float64):
        return False
    if not encoder.causal or any(module.training for module in encoder.modules()):
        return False
    return all(isinstance(block, Block) and can_record(block) for block in encoder.blocks)


class Decoder:
    """`step` for one batch, starting from a copy of `state`, which it updates in place.

    It copies the weights: after the encoder has changed, make another one.

    Args:
        max_new_tokens: how many steps may follow. Softmax attention needs it, to allocate its KV cache.
        head: a linear layer applied to the encoder's output; `step` then returns its result.
    """

    def __init__(
        self,
        encoder: Encoder,
        state: EncoderState,
        *,
        max_new_tokens: int | None = None,
        head: nn.Linear | None = None,
    ) -> None:
        if not can_decode(encoder):
            raise ValueError("this encoder cannot be decoded in place; use encoder.step")
        blocks = [block for block in encoder.blocks if isinstance(block, Block)]
        if len(state.layers) != len(blocks):
            raise ValueError(f"state must have {len(blocks)} layers like this encoder, not {len(state.layers)}")
        weight, batch = next(encoder.parameters()), state.layers[0][-1].shape[0]
        with torch.inference_mode():
            self._program = TokenProgram()
            self._length = ctypes.c_int64(-1)  # tokens in the KV caches; -1: no layer has one
            self._remaining = max_new_tokens  # steps that may still follow
            self.x = self.y = weight.new_empty(batch, encoder.width)
            buffers = Buffers.of(self.x, blocks[0].feedforward.enter.out_features)
            self._layers: list[Any] = []
            for layer, (block, layer_state) in enumerate(zip(blocks, state.layers, strict=True)):
                recorder = BlockRecorder(
                    block, self._program, buffers, layer=layer, length=self._length, capacity=max_new_tokens
                )
                self._layers.append(recorder.record(layer_state))
            if isinstance(encoder.final_norm, nn.LayerNorm):
                self._program.residual_norm(self.x, None, self.x, norm=encoder.final_norm)
            if head is not None:
                self.y = self.x.new_empty(batch, head.out_features)
                self._program.linear(self.x, head.weight, head.bias, self.y)
            self._program.finish(self.x.dtype)

    @property
    def state(self) -> EncoderState:
        """A view of the state, which the next step updates in place."""
        n = self._length.value
        return EncoderState(
            tuple(
                CacheState(layer.k.narrow(2, 0, n), layer.v.narrow(2, 0, n), layer.mask.narrow(1, 0, n))
                if isinstance(layer, CacheState)
                else layer
                for layer in self._layers
            )
        )

    @torch.inference_mode()
    def step(self, x: Tensor) -> Tensor:
        """x (b, width) → y (b, width), or the head's output (b, out_features)."""
        if x.shape != self.x.shape or x.dtype != self.x.dtype:
            raise ValueError(
                f"x must be {self.x.dtype} {tuple(self.x.shape)} like this state, not {x.dtype} {tuple(x.shape)}"
            )
        if self._remaining is not None:
            if self._remaining == 0:
                raise ValueError("no step is left; make the decoder with a larger max_new_tokens")
            self._remaining -= 1
        self.x.copy_(x)
        self._program()
        if self._length.value >= 0:
            self._length.value += 1
        return self.y.clone()
