"""What a causal layer remembers: immutable tuples with the paper's symbols, and what one can do with them.

No function of this library changes a state it was given; each returns a new one. Every tensor in a state has
the batch as its first axis.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

S = TypeVar("S")


class RecurrentState(NamedTuple):
    """The state of a member of the family, in float32 or wider."""

    s: Tensor  # (b, h, d, e)  what is read
    m: Tensor | None = None  # (b, h, d, e)  momentum of the updates; None where the member has none
    z: Tensor | None = None  # (b, h, d)     denominator; None without normalisation


class MomentumState(NamedTuple):
    """The state of causal momentum attention, in float32 or wider."""

    m: Tensor  # (b, h, d, e)  momentum of the updates φ(k) vᵀ
    s: Tensor  # (b, h, d, e)  numerator
    z: Tensor  # (b, h, d)     denominator


class LinearState(NamedTuple):
    """The state of causal linear attention, in float32 or wider."""

    s: Tensor  # (b, h, d, e)
    z: Tensor  # (b, h, d)


class CacheState(NamedTuple):
    """The state of causal softmax attention: every key and value so far, which grows with the sequence."""

    k: Tensor  # (b, h, n, d)
    v: Tensor  # (b, h, n, e)
    mask: Tensor  # (b, n)  False where the token does not exist


def map_state(function: Callable[[Tensor], Tensor], state: S) -> S:
    """The same state with `function` applied to each tensor in it."""
    return _map(function, state)


def _map(function: Callable[[Tensor], Tensor], node: Any) -> Any:
    if isinstance(node, Tensor):
        return function(node)
    if isinstance(node, tuple):
        children = [_map(function, child) for child in node]
        return type(node)(*children) if hasattr(node, "_fields") else tuple(children)
    return node


def detach_state(state: S) -> S:
    """The state cut from the graph, for truncated back-propagation through time."""
    return map_state(Tensor.detach, state)


def move_state(state: S, device: torch.device | str) -> S:
    """The state on another device."""
    return map_state(lambda tensor: tensor.to(device), state)


def reorder_state(state: S, index: Tensor) -> S:
    """Rows `index` of the batch, repeats allowed: what beam search does after each step."""
    return map_state(lambda tensor: tensor.index_select(0, index.to(tensor.device)), state)


def state_bytes(state: Any) -> int:
    """The memory that the tensors of a state take."""
    sizes: list[int] = []

    def measure(tensor: Tensor) -> Tensor:
        sizes.append(tensor.numel() * tensor.element_size())
        return tensor

    map_state(measure, state)
    return sum(sizes)


def state_tensors(state: Any) -> dict[str, Tensor]:
    """The tensors of a state by name (`layers.0.s`), as `safetensors.torch.save_file` takes them."""
    found: dict[str, Tensor] = {}

    def visit(node: Any, name: str) -> None:
        if isinstance(node, Tensor):
            found[name] = node.contiguous()
        elif isinstance(node, tuple):
            for key, child in zip(getattr(node, "_fields", range(len(node))), node, strict=True):
                visit(child, f"{name}.{key}" if name else str(key))

    visit(state, "")
    return found


def load_state(like: S, tensors: dict[str, Tensor]) -> S:
    """The inverse of `state_tensors`: a state built like `like` (an initial state will do) from named tensors."""
    names = list(state_tensors(like))
    if sorted(names) != sorted(tensors):
        missing, unknown = sorted(set(names) - set(tensors)), sorted(set(tensors) - set(names))
        raise ValueError(f"tensors do not fit this state: missing {missing}, unknown {unknown}")
    replacements = iter([tensors[name] for name in names])
    return map_state(lambda _: next(replacements), like)
