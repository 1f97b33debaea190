"""A faster `Encoder.step` for generation: the same weights and numbers, with nothing in between.

q, k and v come from one multiplication, every buffer is made once, states change in place, and what stands between the
matrix multiplications is native code.
"""

import torch
from torch import Tensor, nn

from ..layers.block import Block
from ..layers.mixers import LinearAttention, MomentumAttention
from ..layers.residual import AdaptiveMomentumResidual, MomentumResidual, PlainResidual
from ..models.encoder import Encoder, EncoderState
from ..ops.checks import check_state, coefficient
from ..ops.feature_maps import elu_plus_one
from ..ops.in_place import AttentionInPlace, ConnectionInPlace
from ..ops.native import status
from ..ops.recurrences import Linear, Momentum, Recurrence
from ..ops.state import map_state


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
    return _recurrence(block) is not None


def _recurrence(block: Block) -> Recurrence | None:
    mixer, device = block.attention.mixer, torch.device("cpu")
    if not isinstance(mixer, LinearAttention | MomentumAttention) or mixer.feature_map not in (None, elu_plus_one):
        return None
    if isinstance(mixer, LinearAttention):
        return Linear()
    if mixer.weighting != "relative":
        return None
    beta = coefficient("beta", mixer.beta, 1, device, below_one=True)
    return Momentum(beta, coefficient("gamma", mixer.gamma, 1, device, below_one=False))


class Decoder:
    """`step` for one batch, from `state` on. The state is its own, and changes in place.

    It is made for the weights as they are: after the encoder has changed, make another one.
    """

    def __init__(self, encoder: Encoder, state: EncoderState) -> None:
        if not can_decode(encoder):
            raise ValueError("this encoder cannot be decoded in place; use encoder.step")
        if len(state.layers) != len(encoder.blocks):
            raise ValueError(
                f"state must have {len(encoder.blocks)} layers like this encoder, not {len(state.layers)}"
            )
        weight, batch = next(encoder.parameters()), state.layers[0].z.shape[0]
        with torch.inference_mode():
            # the kernels take contiguous states, and nobody else's
            self.state = map_state(
                lambda x: x.to(weight.dtype, copy=True, memory_format=torch.contiguous_format), state
            )
            self.x = weight.new_empty(batch, encoder.width)
            velocity = torch.empty_like(self.x)
            self.layers: list[_Layer] = []
            x, previous = self.x, None
            for block, layer_state in zip(encoder.blocks, self.state.layers, strict=True):
                assert isinstance(block, Block)
                self.layers.append(_Layer(block, x, layer_state, velocity, previous))
                x, previous = self.layers[-1].out, self.layers[-1].update
        self.final_norm = encoder.final_norm

    @torch.inference_mode()
    def step(self, x: Tensor) -> Tensor:
        """x (b, width) → y (b, width)."""
        if x.shape != self.x.shape or x.dtype != self.x.dtype:
            raise ValueError(
                f"x must be {self.x.dtype} {tuple(self.x.shape)} like this state, not {x.dtype} {tuple(x.shape)}"
            )
        self.x.copy_(x)
        for layer in self.layers:
            layer.step()
        y: Tensor = self.final_norm(self.layers[-1].out)
        return y


class _Layer:
    """The buffers of one block, and its token."""

    def __init__(self, block: Block, x: Tensor, state: object, velocity: Tensor, previous: Tensor | None) -> None:
        attention, network = block.attention, block.feedforward
        projections = (attention.query, attention.key, attention.value)
        self.into_heads = (
            torch.cat([projection.bias for projection in projections]),
            torch.cat([projection.weight for projection in projections]).T,
        )
        self.out_of_heads = attention.out.bias, attention.out.weight.T
        self.enter, self.leave = (
            (network.enter.bias, network.enter.weight.T),
            (network.leave.bias, network.leave.weight.T),
        )
        self.activation = nn.ReLU(inplace=True) if isinstance(network.activation, nn.ReLU) else network.activation
        (batch, width), hidden = x.shape, network.enter.out_features
        self.x = x
        self.qkv, self.mixed, self.hidden = (
            x.new_empty(batch, 3 * width),
            torch.empty_like(x),
            x.new_empty(batch, hidden),
        )
        self.update, self.middle, self.change, self.out = (torch.empty_like(x) for _ in range(4))

        recurrence, mixer = _recurrence(block), attention.mixer
        assert recurrence is not None
        check_state(state, recurrence.state_type, x.device)
        assert isinstance(mixer, LinearAttention | MomentumAttention)
        q, k, v = self.qkv.view(batch, 3, attention.heads, -1).unbind(1)
        y = self.mixed.view(batch, attention.heads, -1)
        elu = mixer.feature_map is elu_plus_one
        self.attend = AttentionInPlace(recurrence, q, k, v, y, state, elu=elu, normalize=mixer.normalize)
        self.connect = _connection(block, x, self.update, self.middle, velocity, previous)
        norm = block.feedforward_norm
        self.finish = ConnectionInPlace(
            self.middle, self.change, self.out, norm=(norm.weight, norm.bias), eps=norm.eps
        )

    def step(self) -> None:
        bias, weight = self.into_heads
        torch.addmm(bias, self.x, weight, out=self.qkv)
        self.attend()
        bias, weight = self.out_of_heads
        torch.addmm(bias, self.mixed, weight, out=self.update)
        self.connect()
        bias, weight = self.enter
        torch.addmm(bias, self.middle, weight, out=self.hidden)
        bias, weight = self.leave
        torch.addmm(bias, self.activation(self.hidden), weight, out=self.change)
        self.finish()


def _connection(
    block: Block, x: Tensor, update: Tensor, out: Tensor, velocity: Tensor, previous: Tensor | None
) -> ConnectionInPlace:
    norm, eps = (block.attention_norm.weight, block.attention_norm.bias), block.attention_norm.eps
    first = previous is None
    match block.residual:
        case MomentumResidual(beta=beta, gamma=gamma):
            return ConnectionInPlace(x, update, out, beta=beta, gamma=gamma, velocity=velocity, first=first, norm=norm)
        case AdaptiveMomentumResidual(gamma=gamma, delta=delta):
            return ConnectionInPlace(
                x,
                update,
                out,
                beta=1 - delta,
                gamma=gamma,
                velocity=velocity,
                first=first,
                previous=previous,
                norm=norm,
                eps=eps,
            )
    return ConnectionInPlace(x, update, out, norm=norm, eps=eps)
