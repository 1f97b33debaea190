"""A faster `Encoder.step` for generation: the same weights and numbers, with nothing in between.

q, k and v come from one multiplication, weights lie in the order in which they are read, every buffer is made once,
states change in place, and a token is one call of native code.
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
    """What the layers work on, one after the other."""

    x: Tensor
    qkv: Tensor
    mixed: Tensor
    middle: Tensor
    hidden: Tensor
    change: Tensor
    velocity: Tensor
    updates: tuple[Tensor, Tensor]  # of this layer and the one before, in turn

    @classmethod
    def of(cls, encoder: Encoder, x: Tensor) -> "_Buffers":
        (batch, width), block = x.shape, encoder.blocks[0]
        assert isinstance(block, Block)
        mixed, middle, change, velocity, *updates = (torch.empty_like(x) for _ in range(6))
        qkv, hidden = x.new_empty(batch, 3 * width), x.new_empty(batch, block.feedforward.enter.out_features)
        return cls(x, qkv, mixed, middle, hidden, change, velocity, (updates[0], updates[1]))


class Decoder:
    """`step` for one batch, from `state` on. The state is its own, and changes in place.

    It is made for the weights as they are: after the encoder has changed, make another one.

    Args:
        room: how many tokens may follow; softmax needs to know, whose cache is made for all of them at once.
        head: a linear map of the encoder's output, which is then what `step` gives.
    """

    def __init__(
        self, encoder: Encoder, state: EncoderState, *, room: int | None = None, head: nn.Linear | None = None
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
            self._count, self._room = ctypes.c_int64(0), room  # of tokens in the caches, and that may come
            self._layers: list[Any] = []
            for block, layer_state in zip(encoder.blocks, state.layers, strict=True):
                assert isinstance(block, Block)
                self._add(block, layer_state)
            self.x = self.y = self._buffers.x
            if isinstance(encoder.final_norm, nn.LayerNorm):
                self._program.connect(self.x, None, self.x, norm=encoder.final_norm)
            if head is not None:
                self.y = self.x.new_empty(batch, head.out_features)
                self._program.multiply(self.x, head.weight, head.bias, self.y)
            self._program.finish(self.x.dtype)

    @property
    def state(self) -> EncoderState:
        """What it remembers; the next step changes it in place."""
        n = self._count.value
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
        """x (b, width) → y (b, width), or what the head makes of it."""
        if x.shape != self.x.shape or x.dtype != self.x.dtype:
            raise ValueError(
                f"x must be {self.x.dtype} {tuple(self.x.shape)} like this state, not {x.dtype} {tuple(x.shape)}"
            )
        if self._room is not None:
            if self._room == 0:
                raise ValueError("there is no room for another token; make the decoder with more")
            self._room -= 1
        self.x.copy_(x)
        self._program()
        self._count.value += 1
        return self.y.clone()

    def _add(self, block: Block, state: Any) -> None:
        """The tasks of one block, from x to x."""
        program, at, attention, network = self._program, self._buffers, block.attention, block.feedforward
        projections = (attention.query, attention.key, attention.value)
        weight, bias = (torch.cat([getattr(p, name) for p in projections]) for name in ("weight", "bias"))
        update, previous = at.updates[:: -1 if len(self._layers) % 2 else 1]
        first = not self._layers
        program.multiply(at.x, weight, bias, at.qkv)
        q, k, v = at.qkv.view(len(at.x), 3, attention.heads, -1).unbind(1)
        self._attend(block, q, k, v, at.mixed.view(len(at.x), attention.heads, -1), state)
        program.multiply(at.mixed, attention.out.weight, attention.out.bias, update)
        rule: dict[str, Any] = {}
        match block.residual:
            case MomentumResidual(beta=beta, gamma=gamma):
                rule = {"beta": beta, "gamma": gamma, "velocity": at.velocity, "first": first}
            case AdaptiveMomentumResidual(gamma=gamma, delta=delta):
                rule = {"beta": 1 - delta, "gamma": gamma, "velocity": at.velocity, "first": first}
                rule["previous"] = None if first else previous
        program.connect(at.x, update, at.middle, norm=block.attention_norm, **rule)
        activation = "relu" if isinstance(network.activation, nn.ReLU) else "gelu"
        program.multiply(at.middle, network.enter.weight, network.enter.bias, at.hidden, activation=activation)
        program.multiply(at.hidden, network.leave.weight, network.leave.bias, at.change)
        program.connect(at.middle, at.change, at.x, norm=block.feedforward_norm)

    def _attend(self, block: Block, q: Tensor, k: Tensor, v: Tensor, y: Tensor, state: Any) -> None:
        mixer, recurrence = block.attention.mixer, _recurrence(block)
        if isinstance(mixer, SoftmaxAttention):
            check_cache(state, k[:, :, None], v[:, :, None])
            cache = self._cache(state, q.dtype)
            self._layers.append(cache)
            self._program.recall(q, k, v, y, cache, self._count)
            return
        assert recurrence is not None
        assert isinstance(mixer, LinearAttention | MomentumAttention)
        (b, h, d), e = q.shape, v.shape[-1]
        kind = LinearState if recurrence.beta is None else MomentumState
        shapes: dict[str, tuple[int, ...] | None] = {"m": (b, h, d, e), "s": (b, h, d, e), "z": (b, h, d)}
        checked_state(state, kind, shapes, q)
        # the kernels take contiguous states, and nobody else's
        own = map_state(lambda x: x.to(q.dtype, copy=True, memory_format=torch.contiguous_format), state)
        self._layers.append(own)
        elu = mixer.feature_map is elu_plus_one
        self._program.recur(recurrence, q, k, v, y, own, elu=elu, normalize=mixer.normalize)

    def _cache(self, state: CacheState, dtype: torch.dtype) -> CacheState:
        """The same keys and values, with room for those to come; what does not exist is zero."""
        if self._room is None or self._room < 0:
            raise ValueError(f"softmax needs room, the number of tokens that may follow, not {self._room}")
        b, h, n = state.k.shape[:3]
        if any(isinstance(layer, CacheState) for layer in self._layers) and n != self._count.value:
            raise ValueError(f"the caches of state must be equally long, not {self._count.value} and {n} tokens")
        self._count.value = n
        k, v = (x.new_zeros(b, h, n + self._room, x.shape[-1], dtype=dtype) for x in (state.k, state.v))
        mask = state.mask.new_ones(b, n + self._room)
        mask[:, :n] = state.mask
        for own, given in ((k, state.k), (v, state.v)):
            own[:, :, :n] = torch.where(state.mask[:, None, :, None], given, 0)
        return CacheState(k, v, mask)
