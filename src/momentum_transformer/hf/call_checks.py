"""What a call of an accelerated model may bring: a cache of this model, and documents that all its layers part."""

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import nn

from .served_mixers import UNPARTED, mixer_class

PACKING = ("cu_seq_lens_q", "seq_idx")  # the arguments that tell packed documents apart
CACHES = ("past_key_values", "cache_params")


class Memory(NamedTuple):
    """What one layer keeps in a cache, of each row.

    Args:
        layer: its number.
        state: the shape of its recurrent state, None for softmax.
        channels: those of its short convolutions, in order.
        keys: of softmax, how many heads the keys have, and their width; None where its class does not say.
    """

    layer: int
    state: tuple[int, ...] | None = None
    channels: tuple[int, ...] = ()
    keys: tuple[int, int] | None = None


@dataclass(frozen=True)
class Layout:
    """What all layers of a model keep, and how it parts documents.

    Args:
        names: the parameters of the model's forward, in order.
        memories: of its layers.
        softmax: whether a layer is softmax attention.
        unparted: whether softmax layers of this architecture see all documents of a row.
    """

    names: tuple[str, ...]
    memories: tuple[Memory, ...]
    softmax: bool
    unparted: bool

    def check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Refuse arguments that Transformers would mix up, before anything is computed."""
        given = dict(zip(self.names, args, strict=False)) | kwargs
        if packing := packed_by(given):
            self._check_packing(packing, given)
        cache = _cache_of(given)
        x = next((given[name] for name in ("input_ids", "inputs_embeds") if given.get(name) is not None), None)
        if cache is not None and x is not None:
            for memory in self.memories:
                check_cache(memory, x.shape[0], cache)

    def _check_packing(self, packing: str, given: dict[str, Any]) -> None:
        if not self.softmax:
            return
        if self.unparted:
            raise ValueError(
                f"{packing} is not for this model: Transformers does not part documents in its softmax layers; give "
                "each document a row of its own, with attention_mask"
            )
        mask = given.get("attention_mask")
        if given.get("position_ids") is None or (mask is not None and getattr(mask, "ndim", 4) == 2):
            raise ValueError(
                f"{packing} needs position_ids that begin again at each document, and no attention_mask: softmax "
                "layers part documents by them alone"
            )


def layout_of(model: nn.Module) -> Layout:
    """Of a model of Transformers that holds the layers itself."""
    mixers = [(module, found) for module in model.modules() if (found := mixer_class(module)) is not None]
    others = [module for module in model.modules() if mixes_tokens(module) and mixer_class(module) is None]
    memories = [memory_of(mixer) for mixer, _ in mixers] + [memory for one in others for memory in _keys_of(one)]
    return Layout(
        names=tuple(inspect.signature(type(model).forward).parameters)[1:],
        memories=tuple(memories),
        softmax=bool(others),
        unparted=any(base.__module__.split(".")[2] in UNPARTED for _, (base, _) in mixers),
    )


def memory_of(mixer: Any) -> Memory:
    """Of a mixer that the kernels know."""
    found = mixer_class(mixer)
    assert found is not None
    channels = tuple(part.out_channels for part in mixer.children() if isinstance(part, nn.Conv1d))
    return Memory(mixer.layer_idx, tuple(getattr(mixer, name) for name in found[1].state), channels)


def mixes_tokens(module: nn.Module) -> bool:
    """Whether a module mixes tokens, by the name of its class: classes of Transformers have no other mark."""
    return type(module).__name__.endswith(("Attention", "Mixer", "DeltaNet", "MambaLayer"))


def check_call_of_mixer(memory: Memory, batch: int, arguments: dict[str, Any]) -> None:
    """What a model decides by itself, such as whether there is a cache, is known in its mixers."""
    cache = _cache_of(arguments)
    if cache is None:
        return
    if packing := packed_by(arguments):
        raise ValueError(
            f"{packing} needs use_cache=False: a cache is of one document a row, and beside one Transformers does not "
            "part documents"
        )
    check_cache(memory, batch, cache)


def packed_by(arguments: dict[str, Any]) -> str | None:
    """The argument that tells packed documents apart, if there is one."""
    return next((name for name in PACKING if arguments.get(name) is not None), None)


def check_cache(memory: Memory, batch: int, cache: Any) -> None:
    """Refuse a cache of another model, before anything is written to it."""
    if not hasattr(cache, "layers"):
        return
    if memory.state is None:
        _check_keys(memory, batch, cache.layers)
    elif hasattr(cache, "linear_cache"):
        if memory.layer < len(cache.linear_cache):
            _check_shape(memory, (batch, *memory.state), cache.linear_cache[memory.layer], "states")
    else:
        _check_state(memory, batch, cache.layers)


def _check_state(memory: Memory, batch: int, layers: list[Any]) -> None:
    assert memory.state is not None
    if memory.layer >= len(layers):
        raise ValueError(f"this cache is of another model: it has {len(layers)} layers, none for layer {memory.layer}")
    layer = layers[memory.layer]
    if not hasattr(layer, "recurrent_states"):
        raise ValueError(
            f"this cache is of another model: layer {memory.layer} is linear attention, and the cache holds a "
            f"{type(layer).__name__} for it"
        )
    if layer.has_previous_state.get(0):
        _check_shape(memory, (batch, *memory.state), layer.recurrent_states[0], "states")
    for number, channels in enumerate(memory.channels):
        if layer.has_previous_state.get(number):
            kept = layer.conv_states[number]
            _check_shape(memory, (batch, channels, kept.shape[-1]), kept, "convolutions")


def _check_keys(memory: Memory, batch: int, layers: list[Any]) -> None:
    if memory.layer >= len(layers):
        return  # it is made at the first call
    layer = layers[memory.layer]
    if not hasattr(layer, "get_seq_length"):
        raise ValueError(
            f"this cache is of another model: layer {memory.layer} is softmax attention, and the cache holds a "
            f"{type(layer).__name__} for it"
        )
    keys = getattr(layer, "keys", None)
    if memory.keys is not None and keys is not None and keys.ndim == 4 and keys.numel() > 0:
        heads, width = memory.keys
        _check_shape(memory, (batch, heads, keys.shape[2], width), keys, "keys")


def _check_shape(memory: Memory, expected: tuple[int, ...], kept: Any, what: str) -> None:
    shape = getattr(kept, "shape", None)
    if shape is not None and tuple(shape) != expected:
        raise ValueError(
            f"this cache is of another model or batch: layer {memory.layer} has {what} {expected}, "
            f"the cache holds {tuple(shape)}"
        )


def _keys_of(attention: Any) -> Iterable[Memory]:
    layer, width = getattr(attention, "layer_idx", None), getattr(attention, "head_dim", None)
    features = getattr(getattr(attention, "k_proj", None), "out_features", None)
    keys = (features // width, width) if isinstance(width, int) and isinstance(features, int) else None
    if layer is not None:
        yield Memory(layer, keys=keys)


def _cache_of(arguments: dict[str, Any]) -> Any:
    return next((arguments[name] for name in CACHES if arguments.get(name) is not None), None)
