"""Names of projections that adapters look for: the same layers and blocks, with q_proj where ours say query.

Adapters such as LoRA find an `nn.Linear` by the name under which its parent holds it, and put another module there. So
the parents hold their projections under those names, and read them through properties.
"""

import re
from operator import attrgetter

from torch import Tensor, nn

from ..layers.block import Attention, FeedForward
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
    query, key, value, out = (property(attrgetter(name)) for name in ("q_proj", "k_proj", "v_proj", "o_proj"))  # type: ignore[assignment]


class NamedFeedForward(FeedForward):
    enter, leave = (property(attrgetter(name)) for name in ("up_proj", "down_proj"))  # type: ignore[assignment]


def with_names(encoder: Encoder) -> Encoder:
    """The encoder itself, its projections under the names of `NAMES`."""
    for block in encoder.blocks:
        for ours, theirs in NAMES.items():
            parent: nn.Module = getattr(block, ours.partition(".")[0])
            before, after = ours.partition(".")[2], theirs.partition(".")[2]
            child = parent._modules.pop(before)
            parent.add_module(after, child)
        block.attention.__class__ = NamedAttention
        block.feedforward.__class__ = NamedFeedForward
    return encoder


def renamed(weights: dict[str, Tensor], *, back: bool = False) -> dict[str, Tensor]:
    """Weights of an encoder under those names, or under ours again."""
    names = {theirs: ours for ours, theirs in NAMES.items()} if back else NAMES
    pattern = re.compile(rf"(?<=blocks\.)(\d+)\.({'|'.join(map(re.escape, names))})(?=\.)")
    return {pattern.sub(lambda found: f"{found[1]}.{names[found[2]]}", key): value for key, value in weights.items()}
