"""Names of projections that adapters look for: the same layers and blocks, with q_proj where ours say query.

Adapters such as LoRA find an `nn.Linear` by the name under which its parent holds it, and put another module there. So
the parents hold their projections under those names, and read them through properties.
"""

import re

from torch import Tensor, nn

from ..layers.block import Attention, FeedForward, GatedFeedForward
from ..models.encoder import Encoder

NAMES = {
    "attention.query": "attention.q_proj",
    "attention.key": "attention.k_proj",
    "attention.value": "attention.v_proj",
    "attention.out": "attention.o_proj",
    "feedforward.enter": "feedforward.up_proj",
    "feedforward.leave": "feedforward.down_proj",
}


class NamedAttention(Attention):
    # written out, since compilers look through plain functions only
    query = property(lambda self: self.q_proj)
    key = property(lambda self: self.k_proj)
    value = property(lambda self: self.v_proj)
    out = property(lambda self: self.o_proj)


class NamedFeedForward(FeedForward):
    enter = property(lambda self: self.up_proj)
    leave = property(lambda self: self.down_proj)


class NamedGatedFeedForward(GatedFeedForward):
    enter = property(lambda self: self.up_proj)  # the gate and the value in one
    leave = property(lambda self: self.down_proj)


NAMED: dict[type[nn.Module], type[nn.Module]] = {
    Attention: NamedAttention,
    FeedForward: NamedFeedForward,
    GatedFeedForward: NamedGatedFeedForward,
}


def with_names(encoder: Encoder) -> Encoder:
    """The encoder itself, its projections under the names of `NAMES`."""
    for block in encoder.blocks:
        for ours, theirs in NAMES.items():
            parent: nn.Module = getattr(block, ours.partition(".")[0])
            before, after = ours.partition(".")[2], theirs.partition(".")[2]
            child = parent._modules.pop(before)
            parent.add_module(after, child)
        for name in ("attention", "feedforward"):
            part = block.get_submodule(name)
            part.__class__ = NAMED[type(part)]
    return encoder


def renamed(weights: dict[str, Tensor], *, back: bool = False) -> dict[str, Tensor]:
    """Weights of an encoder under those names, or under ours again."""
    names = {theirs: ours for ours, theirs in NAMES.items()} if back else NAMES
    pattern = re.compile(rf"(?<=blocks\.)(\d+)\.({'|'.join(map(re.escape, names))})(?=\.)")
    return {pattern.sub(lambda found: f"{found[1]}.{names[found[2]]}", key): value for key, value in weights.items()}
