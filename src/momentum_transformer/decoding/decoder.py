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
from ..ops.checks import check_whole
from ..ops.state import state_tensors
from . import block_recorder
from .attention_recorder import Kept
from .block_recorder import BlockRecorder
from .buffers import Buffers
from .program import TokenProgram


def refusal(encoder: Encoder) -> str | None:
    """Why `Decoder` does not serve this encoder; None where it does."""
    weight = next(encoder.parameters())
    if status() is not None:
        return f"the native kernels are {status()}"
    if weight.device.type != "cpu" or weight.dtype not in (torch.float32, torch.float64):
        return f"it decodes float32 and float64 on the CPU, not {weight.dtype} on {weight.device}"
    if not encoder.causal:
        return "without causal order there is no next token"
    if any(module.training for module in encoder.modules()):
        return "it is in training mode; call encoder.eval()"
    for block in encoder.blocks:
        reason = block_recorder.refusal(block) if isinstance(block, Block) else f"{type(block).__name__} is no Block"
        if reason is not None:
            return reason
    if not isinstance(encoder.final_norm, nn.Identity):
        return block_recorder.norm_refusal(encoder.final_norm)
    return None


def can_decode(encoder: Encoder) -> bool:
    """Whether `Decoder` serves this encoder; where not, `Encoder.step` does."""
    return refusal(encoder) is None


class Decoder:
    """`step` for one batch, starting from a copy of `state`, which it updates in place.

    It copies the weights: after the encoder has changed, make another one.

    Args:
        max_new_tokens: how many steps may follow. Softmax attention needs it, to allocate its KV cache.
        head: a linear layer, or its weight and bias, applied to the encoder's output; `step` returns its result.
    """

    def __init__(
        self,
        encoder: Encoder,
        state: EncoderState,
        *,
        max_new_tokens: int | None = None,
        head: nn.Linear | tuple[Tensor, Tensor | None] | None = None,
    ) -> None:
        if max_new_tokens is not None:
            check_whole("max_new_tokens", max_new_tokens, 0)
        reason = refusal(encoder)
        if reason is not None:
            raise ValueError(f"this encoder cannot be decoded in place: {reason}; use encoder.step")
        blocks = [block for block in encoder.blocks if isinstance(block, Block)]
        if not isinstance(state, EncoderState):
            raise ValueError(f"state must be an EncoderState, not {type(state).__name__}")
        if len(state.layers) != len(blocks):
            raise ValueError(f"state must have {len(blocks)} layers like this encoder, not {len(state.layers)}")
        weight, batch = next(encoder.parameters()), _batch(state)
        with torch.inference_mode():
            self._program = TokenProgram()
            self._steps = ctypes.c_int64(0)  # taken so far
            self._remaining = max_new_tokens  # steps that may still follow
            self.x = self.y = weight.new_empty(batch, encoder.width)
            network: Any = blocks[0].feedforward
            buffers = Buffers(self.x, network.leave.in_features)
            self._layers: list[Kept] = []
            for layer, (block, layer_state) in enumerate(zip(blocks, state.layers, strict=True)):
                recorded = BlockRecorder(
                    block, self._program, buffers, layer=layer, steps=self._steps, capacity=max_new_tokens
                )
                self._layers.append(recorded.record(layer_state))
            if isinstance(encoder.final_norm, nn.LayerNorm | nn.RMSNorm):
                self._program.residual_norm(self.x, None, self.x, norm=encoder.final_norm)
            if head is not None:
                matrix, bias = (head.weight, head.bias) if isinstance(head, nn.Linear) else head
                _check_head(matrix, bias, self.x)
                self.y = self.x.new_empty(batch, len(matrix))
                self._program.linear(self.x, matrix, bias, self.y)
            self._program.finish(self.x.dtype)

    @property
    def state(self) -> EncoderState:
        """The state after the last step. What can be a view is one, and the next step updates it in place."""
        return EncoderState(tuple(layer() for layer in self._layers))

    @torch.inference_mode()
    def step(self, x: Tensor) -> Tensor:
        """x (b, width) → y (b, width), or the head's output (b, out_features)."""
        if not isinstance(x, Tensor):
            raise ValueError(f"x must be a tensor, not {type(x).__name__}")
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
        self._steps.value += 1
        return self.y.clone()


def _check_head(weight: Tensor, bias: Tensor | None, x: Tensor) -> None:
    """Native code reads what these shapes, this dtype and this device say."""
    if weight.ndim != 2 or weight.shape[1] != x.shape[1]:
        raise ValueError(f"head must have a weight (out_features, {x.shape[1]}), not {tuple(weight.shape)}")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"head must have a bias ({len(weight)},) or none, not {tuple(bias.shape)}")
    for tensor in (weight, bias):
        if tensor is not None and (tensor.dtype != x.dtype or tensor.device != x.device):
            raise ValueError(
                f"head must be {x.dtype} on {x.device} like the encoder, not {tensor.dtype} on {tensor.device}"
            )


def _batch(state: EncoderState) -> int:
    return next(iter(state_tensors(state).values())).shape[0]
