"""A faster `Encoder.step` for generation: the same weights and results, without PyTorch between the layers.

q, k and v come from one matrix multiplication, weights are packed in the order in which they are read, buffers are
allocated once, states are updated in place, and a token is one call of the native kernels.
"""

import ctypes
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..backend.cpu.native_backend import status
from ..layers.block import Block
from ..layers.mixers import LinearAttention, MomentumAttention, SoftmaxAttention
from ..layers.residual import AdaptiveMomentumResidual, MomentumResidual, PlainResidual
from ..models.encoder import Encoder, EncoderState
from ..ops.checks import checked_state
from ..ops.coefficients import MOMENTUM_ATTENTION, Coefficients, member
from ..ops.feature_maps import elu_plus_one
from ..ops.softmax import check_cache
from ..ops.state import CacheState, LinearState, MomentumState, map_state
from .program import TokenProgram


def can_decode(encoder: Encoder) -> bool:
    """Whether `Decoder` serves this encoder; where not, `Encoder.step` does."""
    weight = next(encoder.parameters())
    if status() is not None or weight.device.type != "cpu" or weight.dtype not in (torch.float32, torch.float64):
        return False
    if not encoder.causal or any(module.training for module in encoder.modules()):
        return False
    return all(isinstance(block, Block) and _served(block) for block in encoder.blocks)


def _served(block: Block) -> bool:
    rule = block.residual
    adaptive = isinstance(rule, AdaptiveMomentumResidual) and rule.rule == "paper"
    if block.norm != "post" or not (adaptive or isinstance(rule, PlainResidual | MomentumResidual)):
        return False
    return isinstance(block.attention.mixer, SoftmaxAttention) or _recurrence(block) is not None


def _recurrence(block: Block) -> Coefficients | None:
    mixer = block.attention.mixer
    if not isinstance(mixer, LinearAttention | MomentumAttention) or mixer.feature_map not in (None, elu_plus_one):
        return None
    if isinstance(mixer, LinearAttention):
        return Coefficients()
    if mixer.weighting != "relative":
        return None
    return member(torch.empty(0, 1, 0, 0), MOMENTUM_ATTENTION, beta=mixer.beta, gamma=mixer.gamma)[0]


class _Buffers(NamedTuple):
    """Activations, shared by all layers."""

    x: Tensor
    qkv: Tensor
    attended: Tensor  # what attention returns
    middle: Tensor  # after the attention's residual and norm
    hidden: Tensor  # inside the feed-forward network
    change: Tensor  # what the feed-forward network returns
    velocity: Tensor
    updates: tuple[Tensor, Tensor]  # double buffer: the attention updates of this layer and of the one before

    @classmethod
    def of(cls, encoder: Encoder, x: Tensor) -> "_Buffers":
        (batch, width), block = x.shape, encoder.blocks[0]
        assert isinstance(block, Block)
        attended, middle, change, velocity, *updates = (torch.empty_like(x) for _ in range(6))
        qkv, hidden = x.new_empty(batch, 3 * width), x.new_empty(batch, block.feedforward.enter.out_features)
        return cls(x, qkv, attended, middle, hidden, change, velocity, (updates[0], updates[1]))


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
        if len(state.layers) != len(encoder.blocks):
            raise ValueError(
                f"state must have {len(encoder.blocks)} layers like this encoder, not {len(state.layers)}"
            )
        weight, batch = next(encoder.parameters()), state.layers[0][-1].shape[0]
        with torch.inference_mode():
            self._buffers = _Buffers.of(encoder, weight.new_empty(batch, encoder.width))
            self._program = TokenProgram()
            self._length = ctypes.c_int64(0)  # tokens in the KV caches
            self._remaining = max_new_tokens  # steps that may still follow
            self._layers: list[Any] = []
            for block, layer_state in zip(encoder.blocks, state.layers, strict=True):
                assert isinstance(block, Block)
                self._add(block, layer_state)
            self.x = self.y = self._buffers.x
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
        self._length.value += 1
        return self.y.clone()

    def _add(self, block: Block, state: Any) -> None:
        """Append the tasks of one block, which reads and writes the buffer x."""
        program, at, attention, network = self._program, self._buffers, block.attention, block.feedforward
        projections = (attention.query, attention.key, attention.value)
        weight, bias = (torch.cat([getattr(p, name) for p in projections]) for name in ("weight", "bias"))
        update, previous = at.updates[:: -1 if len(self._layers) % 2 else 1]
        first = not self._layers
        program.linear(at.x, weight, bias, at.qkv)
        q, k, v = at.qkv.view(len(at.x), 3, attention.heads, -1).unbind(1)
        self._attend(block, q, k, v, at.attended.view(len(at.x), attention.heads, -1), state)
        program.linear(at.attended, attention.out.weight, attention.out.bias, update)
        rule: dict[str, Any] = {}
        match block.residual:
            case MomentumResidual(beta=beta, gamma=gamma):
                rule = {"beta": beta, "gamma": gamma, "velocity": at.velocity, "first_layer": first}
            case AdaptiveMomentumResidual(gamma=gamma, delta=delta):
                rule = {"beta": 1 - delta, "gamma": gamma, "velocity": at.velocity, "first_layer": first}
                rule["previous_update"] = None if first else previous
        program.residual_norm(at.x, update, at.middle, norm=block.attention_norm, **rule)
        activation = "relu" if isinstance(network.activation, nn.ReLU) else "gelu"
        program.linear(at.middle, network.enter.weight, network.enter.bias, at.hidden, activation=activation)
        program.linear(at.hidden, network.leave.weight, network.leave.bias, at.change)
        program.residual_norm(at.middle, at.change, at.x, norm=block.feedforward_norm)

    def _attend(self, block: Block, q: Tensor, k: Tensor, v: Tensor, y: Tensor, state: Any) -> None:
        mixer, recurrence = block.attention.mixer, _recurrence(block)
        if isinstance(mixer, SoftmaxAttention):
            check_cache(state, k[:, :, None], v[:, :, None])
            cache = self._cache(state, q.dtype)
            self._layers.append(cache)
            self._program.cached_attention(q, k, v, y, cache, self._length)
            return
        assert recurrence is not None
        assert isinstance(mixer, LinearAttention | MomentumAttention)
        (b, h, d), e = q.shape, v.shape[-1]
        kind = LinearState if recurrence.beta is None else MomentumState
        shapes: dict[str, tuple[int, ...] | None] = {"m": (b, h, d, e), "s": (b, h, d, e), "z": (b, h, d)}
        checked_state(state, kind, shapes, q)
        # a contiguous copy, as the kernels need, and because they update it in place
        own = map_state(lambda x: x.to(q.dtype, copy=True, memory_format=torch.contiguous_format), state)
        self._layers.append(own)
        elu = mixer.feature_map is elu_plus_one
        self._program.attention_step(recurrence, q, k, v, y, own, elu=elu, normalize=mixer.normalize)

    def _cache(self, state: CacheState, dtype: torch.dtype) -> CacheState:
        """A copy with capacity for `max_new_tokens` more tokens; masked keys and values are zero."""
        if self._remaining is None or self._remaining < 0:
            raise ValueError(f"softmax needs max_new_tokens, the number of steps to come, not {self._remaining}")
        b, h, n = state.k.shape[:3]
        if any(isinstance(layer, CacheState) for layer in self._layers) and n != self._length.value:
            raise ValueError(f"the caches of state must be equally long, not {self._length.value} and {n} tokens")
        self._length.value = n
        k, v = (x.new_zeros(b, h, n + self._remaining, x.shape[-1], dtype=dtype) for x in (state.k, state.v))
        mask = state.mask.new_ones(b, n + self._remaining)
        mask[:, :n] = state.mask
        for own, given in ((k, state.k), (v, state.v)):
            own[:, :, :n] = torch.where(state.mask[:, None, :, None], given, 0)
        return CacheState(k, v, mask)
