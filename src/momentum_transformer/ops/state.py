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
    """The state of a member of the family, in float32 or wider.

    Attributes:
        s: (b, h, d, e) what is read.
        m: (b, h, d, e) momentum of the updates; None where the member has none.
        z: (b, h, d) denominator; None without normalisation.

    Examples:
        >>> q, k, v = torch.randn(3, 2, 4, 50, 16).unbind(0)
        >>> y, state = recurrent_attention(q, k, v, alpha=0.9, return_state=True)
        >>> state.s.shape, state.m, state.z
        (torch.Size([2, 4, 16, 16]), None, None)
    """

    s: Tensor
    m: Tensor | None = None
    z: Tensor | None = None


class MomentumState(NamedTuple):
    """The state of causal momentum attention, in float32 or wider.

    Attributes:
        m: (b, h, d, e) momentum of the updates φ(k) vᵀ.
        s: (b, h, d, e) numerator.
        z: (b, h, d) denominator.

    Examples:
        >>> q, k, v = torch.randn(3, 2, 4, 50, 16).unbind(0)
        >>> y, state = momentum_attention(q, k, v, beta=0.6, return_state=True)
        >>> y, state = momentum_attention(q, k, v, beta=0.6, state=state, return_state=True)  # 50 more tokens
    """

    m: Tensor
    s: Tensor
    z: Tensor


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
    """The same state with `function` applied to each tensor in it.

    Args:
        function: from a tensor of the state to the one that takes its place.
        state: tensors in tuples, however deep; what is neither stays as it is.

    Returns:
        A new state of the same type.

    Examples:
        >>> state = Encoder(2, 16, 2).initial_state(batch_size=3)
        >>> halved = map_state(lambda tensor: tensor / 2, state)
    """
    return _map(function, state)


def _map(function: Callable[[Tensor], Tensor], node: Any) -> Any:
    if isinstance(node, Tensor):
        return function(node)
    if isinstance(node, tuple):
        children = [_map(function, child) for child in node]
        return type(node)(*children) if hasattr(node, "_fields") else tuple(children)
    return node


def detach_state(state: S) -> S:
    """The state cut from the graph, for truncated back-propagation through time.

    Args:
        state: of any causal layer or model.

    Returns:
        A state of the same tensors, which need no gradients.

    Examples:
        >>> encoder, (first, second) = Encoder(2, 16, 2), torch.randn(2, 3, 50, 16)
        >>> y, state = encoder(first, return_state=True)
        >>> y, state = encoder(second, state=detach_state(state), return_state=True)  # gradients end here
    """
    return map_state(Tensor.detach, state)


def move_state(state: S, device: torch.device | str) -> S:
    """The state on another device.

    Args:
        state: of any causal layer or model.
        device: as `torch.Tensor.to` takes it.

    Returns:
        A new state there.

    Examples:
        >>> state = move_state(Encoder(2, 16, 2).initial_state(batch_size=3), "cpu")
    """
    return map_state(lambda tensor: tensor.to(device), state)


def reorder_state(state: S, index: Tensor) -> S:
    """Rows of the batch in another order, repeats allowed: what beam search does after each step.

    Args:
        state: of any causal layer or model.
        index: which rows, whole numbers (new batch,).

    Returns:
        The state of these rows.

    Examples:
        >>> state = Encoder(2, 16, 2).initial_state(batch_size=3)
        >>> best = reorder_state(state, torch.tensor([2, 2, 0]))
    """
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
    """The tensors of a state by name, as `safetensors.torch.save_file` takes them.

    Args:
        state: of any causal layer or model.

    Returns:
        Tensors by the path of fields that leads to each.

    Examples:
        >>> list(state_tensors(Encoder(1, 16, 2).initial_state(batch_size=3)))
        ['layers.0.m', 'layers.0.s', 'layers.0.z']
    """
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
    """The inverse of `state_tensors`.

    Args:
        like: a state of the same model; an initial one will do.
        tensors: by name.

    Returns:
        The state that these tensors are.

    Examples:
        >>> encoder = Encoder(1, 16, 2)
        >>> y, state = encoder(torch.randn(3, 50, 16), return_state=True)
        >>> again = load_state(encoder.initial_state(batch_size=3), state_tensors(state))
    """
    names = list(state_tensors(like))
    if sorted(names) != sorted(tensors):
        missing, unknown = sorted(set(names) - set(tensors)), sorted(set(tensors) - set(names))
        raise ValueError(f"tensors do not fit this state: missing {missing}, unknown {unknown}")
    replacements = iter([tensors[name] for name in names])
    return map_state(lambda _: next(replacements), like)
