"""Parts around a mixer, each of which can be switched off: a convolution before it, a norm and a gate behind it."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from torch import Tensor, nn

from ..backend.surroundings import norm_and_gate
from ..ops.checks import check_choice, check_mask
from .linear_layer import Linear
from .short_convolution import Convolution, Pasts, ShortConvolution
from .situation import Mix, Situation

EPS = 1e-5  # of the norm


class PartsState(NamedTuple):
    """What a mixer with a convolution remembers."""

    convolution: Pasts | None  # None without causal order
    mixer: Any


@dataclass(frozen=True)
class Tail:
    """What happens to a mixer's output: a norm of each head, and a gate that x opens.

    A "low-rank" gate goes through as many features as a head has, so that a layer has hardly more parameters than one
    of softmax attention; a "full" one has another width × width matrix.
    """

    norm: bool = True
    gate: Literal["none", "low-rank", "full"] = "low-rank"

    def __post_init__(self) -> None:
        check_choice("gate", self.gate, ("none", "low-rank", "full"))

    def build(self, width: int, heads: int) -> "NormAndGate":
        return NormAndGate(self, width, heads)


class NormAndGate(nn.Module):
    """RMSNorm(y) · sigmoid(gate(x)), head by head."""

    def __init__(self, options: Tail, width: int, heads: int) -> None:
        super().__init__()
        inner = width // heads
        self.norm = nn.RMSNorm(inner, eps=EPS) if options.norm else None
        self.gate: nn.Module | None = None
        if options.gate == "full":
            self.gate = Linear(width, width, bias=False)
        elif options.gate == "low-rank":
            self.gate = nn.Sequential(Linear(width, inner, bias=False), Linear(inner, width))

    def forward(self, y: Tensor, at: Situation) -> Tensor:
        gate = None
        if self.gate is not None:
            gate = self.gate(tokens_of(at)).unflatten(-1, (y.shape[1], -1)).transpose(1, 2)
        if self.norm is not None:
            return norm_and_gate(y, self.norm.weight, gate, eps=EPS)
        return y if gate is None else y * gate.sigmoid().to(y.dtype)


def tokens_of(at: Situation) -> Tensor:
    """x, where queries and keys are of the same tokens."""
    if at.x is None:
        raise ValueError("this mixer needs queries and keys of the same tokens: it cannot be cross attention")
    return at.x


class WithParts(nn.Module):
    """A convolution, a mixer, a tail."""

    def __init__(self, mix: Mix, convolution: Convolution | None, tail: NormAndGate | None) -> None:
        super().__init__()
        self.convolution, self.mix, self.tail = convolution, mix, tail

    def forward(self, q: Tensor, k: Tensor, v: Tensor, at: Situation) -> tuple[Tensor, Any]:
        if self.convolution is None:
            y, state = self.mix(q, k, v, at)
            return (y if self.tail is None else self.tail(y, at)), state
        tokens_of(at)
        check_mask("key_mask", at.key_mask, k)
        check_mask("reset", at.reset, q, meaning="True = a document begins")
        if at.state is not None and not isinstance(at.state, PartsState):
            raise ValueError(f"state must be a PartsState, not {type(at.state).__name__}")
        before = at.state or PartsState(None, None)
        q, k, v, pasts = self.convolution(q, k, v, at, before.convolution)
        y, state = self.mix(q, k, v, at._replace(state=before.mixer))
        if self.tail is not None:
            y = self.tail(y, at)
        return y, PartsState(pasts, state) if at.return_state else None


def with_parts(
    mix: Mix, width: int, heads: int, convolution: ShortConvolution | None, tail: Tail | None = None
) -> Mix:
    """The mixer itself where it has no parts."""
    for name, part, kind in (("convolution", convolution, ShortConvolution), ("tail", tail, Tail)):
        if part is not None and not isinstance(part, kind):
            raise ValueError(f"{name} must be a {kind.__name__} or None, not {part!r}")
    if convolution is None and tail is None:
        return mix
    return WithParts(
        mix,
        None if convolution is None else convolution.build(width, heads),
        None if tail is None else tail.build(width, heads),
    )
