"""Where the time of a block goes: its parts by themselves, and what stands around the recurrence in PyTorch's way too.

    python -m momentum_transformer.bench.blocks --out results/blocks.json

One thread, contestants in turns. A time is the thread's own (CPU time), the best of many, so that a busy machine
spoils little. `--stand-in` puts momentum attention with a constant β, which is native in both directions, in the place
of the recurrence: for a version in which a member of the family is not.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor, nn

from ..attention import momentum_attention, recurrent_attention
from ..backend import surroundings
from ..backend.cpu import native_backend
from ..backend.cpu.row_norm_operator import native_map
from ..layers import (
    DeltaAttention,
    GatedDeltaAttention,
    GatedMomentumAttention,
    MomentumDeltaAttention,
    RetentionAttention,
    family_mixers,
)
from ..layers.block import Block
from ..layers.presets import PaperBlock
from ..layers.residual import PlainResidual
from ..layers.situation import Situation
from ..ops.feature_maps import l2_normalized
from ..training.allocator import keep_freed_memory
from .record import machine, save
from .timing import processor_seconds

COMMAND = "python -m momentum_transformer.bench.blocks"
MIXERS = {
    "gated-delta": GatedDeltaAttention(),
    "momentum-delta": MomentumDeltaAttention(),
    "delta": DeltaAttention(),
    "retention": RetentionAttention(),
    "gated-momentum": GatedMomentumAttention(),
}
TURN = 0.02  # seconds of calls, at least one


class Size(NamedTuple):
    b: int
    n: int
    width: int
    heads: int
    feedforward: int


PICTURES, WIDE, COPY = Size(10, 784, 256, 8, 1024), Size(4, 1024, 512, 8, 2048), Size(12, 64, 128, 4, 512)
ARENA = Size(4, 2048, 64, 2, 128)  # the width of Long Range Arena
CASES = [("gated-delta", size) for size in (PICTURES, WIDE, COPY, Size(32, 64, 64, 4, 256), ARENA)]
CASES += [(mixer, size) for size in (COPY, ARENA) for mixer in list(MIXERS)[1:]]


class Part:
    """A computation of tensors that need gradients, and the parameters that do."""

    def __init__(self, run: Callable[..., Any], inputs: tuple[Tensor, ...], parameters: tuple[Tensor, ...]) -> None:
        self.run, self.inputs, self.parameters = run, inputs, parameters
        self.grads: list[Tensor] = []  # of the outputs

    def forward(self) -> None:
        with torch.no_grad():
            self.run(*self.inputs)

    def both(self) -> None:
        found = self.run(*self.inputs)
        some = found if isinstance(found, tuple) else (found,)
        outputs = list({id(y): y for y in some if isinstance(y, Tensor) and y.requires_grad}.values())
        if not self.grads:
            self.grads.extend(torch.randn_like(y) for y in outputs)
        torch.autograd.grad(outputs, (*self.inputs, *self.parameters), self.grads, allow_unused=True)


@contextmanager
def in_pytorch() -> Iterator[None]:
    """What stands around a recurrence by the forms of ops/, and a product for each gate."""
    with (
        patch.object(surroundings, "refusal", lambda *tensors: "this measures PyTorch's way"),
        patch.object(native_backend, "native_map", lambda feature_map: feature_map),
        patch.object(family_mixers, "open_gates", lambda gates, x: [gate(x) for gate in gates]),
    ):
        yield


class _Joined(torch.autograd.Function):
    """y, and gradients of nothing for the coefficients that a stand-in does not use."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, *coefficients: Tensor) -> Tensor:
        ctx.save_for_backward(*coefficients)
        return y.view_as(y)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, ...]:
        return dy, *(torch.zeros_like(x) for x in ctx.saved_tensors)


def stand_in(q: Tensor, k: Tensor, v: Tensor, *, feature_map: Any, normalize: bool, **options: Any) -> Tensor:
    y = momentum_attention(q, k, v, beta=0.6, feature_map=feature_map, normalize=normalize)
    used = {id(x): x for x in options.values() if isinstance(x, Tensor) and x.requires_grad}
    return _Joined.apply(y, *used.values())


def parts(block: Block, size: Size, recurrence: Callable[..., Any]) -> dict[str, Part]:
    """The block, and what it does, by name."""
    attention, mixer = block.attention, block.attention.mixer
    mix: Any = getattr(mixer, "mix", mixer)
    convolution, tail = (getattr(mixer, name, None) for name in ("convolution", "tail"))
    x, *qkv = (torch.randn(size.b, size.n, size.width, requires_grad=True) for _ in range(4))
    y = qkv[0]

    def heads(lines: Tensor) -> Tensor:
        return lines.unflatten(-1, (size.heads, -1)).transpose(1, 2)

    def learned(*modules: nn.Module) -> tuple[Tensor, ...]:
        return tuple(p for module in modules for p in module.parameters() if p.requires_grad)

    def at(x: Tensor) -> Situation:
        return Situation(True, x=x)

    projections = (attention.query, attention.key, attention.value, attention.out)
    norms = (block.attention_norm, block.feedforward_norm)
    with torch.no_grad():
        coefficients = mix.coefficients(at(x))
    gates = tuple(gate for gate in (mix.alpha, mix.beta, mix.gamma, mix.eta) if gate is not None)
    unit = mix.feature_map is l2_normalized
    feature_map = None if unit else mix.feature_map
    found = {
        "block": Part(lambda x: block(x, None)[0], (x,), learned(block)),
        "projections": Part(lambda x: tuple(one(x) for one in projections), (x,), learned(*projections)),
        "feed-forward": Part(block.feedforward, (x,), learned(block.feedforward)),
        "norms and residuals": Part(lambda x: tuple(norm(x + x) for norm in norms), (x,), learned(*norms)),
        "recurrence": Part(
            lambda *qkv: recurrence(
                *map(heads, qkv), **coefficients, feature_map=feature_map, normalize=mix.normalize
            ),
            tuple(qkv),
            (),
        ),
    }
    if convolution is not None:
        run = convolution
        found["convolution"] = Part(
            lambda *qkv: run(*map(heads, qkv), at(x), None)[:3], tuple(qkv), learned(convolution)
        )
    if gates:
        found["gates"] = Part(lambda x: tuple(mix.coefficients(at(x)).values()), (x,), learned(*gates))
    if unit:
        found["unit rows"] = Part(lambda *qk: tuple(_unit(heads(one)) for one in qk), tuple(qkv[:2]), ())
    if tail is not None:
        found["norm and gate"] = Part(lambda y, x: tail(heads(y), at(x)), (y, x), learned(tail))
    return found


def _unit(x: Tensor) -> Tensor:
    native = native_map(l2_normalized)
    assert native is not None
    return native(x) if surroundings.refusal(x) is None else l2_normalized(x)


AROUND = ("block", "convolution", "gates", "unit rows", "norm and gate")  # timed in PyTorch's way, too


def measure(mixer: str, size: Size, *, rounds: int, recurrence: Callable[..., Any]) -> dict[str, Any]:
    """Milliseconds of the block and its parts, in both directions, with native code and in PyTorch's way."""
    torch.manual_seed(0)
    options = {"mixer": MIXERS[mixer], "residual": PlainResidual(), "causal": True, "dropout": 0.0}
    block = Block(size.width, size.heads, preset=PaperBlock("pre"), feedforward=size.feedforward, **options)
    found = parts(block, size, recurrence)
    times: dict[str, dict[str, float]] = {}
    for _ in range(rounds):
        for name, part in found.items():
            for direction, call in (("forward", part.forward), ("forward+backward", part.both)):
                took(times, name, direction, call)
                if name in AROUND:
                    with in_pytorch():
                        took(times, f"{name}, PyTorch", direction, call)
    return {"mixer": mixer, "size": size._asdict(), "milliseconds": times}


def took(times: dict[str, dict[str, float]], name: str, direction: str, call: Callable[[], None]) -> None:
    """Note the best of a turn's calls, where it is better than before."""
    best, end = times.setdefault(name, {}).get(direction, float("inf")), processor_seconds() + TURN
    while True:
        start = processor_seconds()
        call()
        now = processor_seconds()
        best = min(best, 1000 * (now - start))
        if now > end:
            break
    times[name][direction] = best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--stand-in", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    recurrence: Callable[..., Any] = stand_in if options.stand_in else recurrent_attention
    rows = []
    with patch.object(family_mixers, "recurrent_attention", recurrence):
        for mixer, size in CASES:
            rows.append(measure(mixer, size, rounds=options.rounds, recurrence=recurrence))
            sys.stdout.write(f"{mixer} {tuple(size)}: {rows[-1]['milliseconds']}\n")
            sys.stdout.flush()
    command = f"{COMMAND}{' --stand-in' * options.stand_in} --out results/blocks.json"
    kept = {"stand_in": options.stand_in, "rows": rows}
    save({"command": command, "machine": machine() | {"threads": 1}} | kept, options.out)


if __name__ == "__main__":
    main()
