"""How a mixer comes to our kernels: at each call, Transformers' functions ask whether the mixer that calls wants ours.

Transformers looks its kernel functions up in the module of the mixer at each call. There we put functions that call
its own, unless a mixer that was switched over is running in this thread. Nothing else is touched.
"""

import functools
import inspect
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ..backend.products import prefers_onednn
from ..layers.linear_layer import Linear
from .served_mixers import Kind, mixer_class

HOOKS = "momentum_transformer_hooks"  # the attribute of a mixer that is switched over


class _Running(threading.local):
    ours = False


RUNNING = _Running()


def exchangeable(theirs: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    """`theirs`, unless a mixer that is switched over runs; while a graph is exported, always `theirs`."""

    @functools.wraps(theirs)
    def function(*args: Any, **kwargs: Any) -> Any:
        chosen = ours if RUNNING.ours and not torch.compiler.is_exporting() else theirs
        return chosen(*args, **kwargs)

    function.exchanged = True  # type: ignore[attr-defined]
    return function


def prepare(base: type[nn.Module], kind: Kind) -> None:
    """Put the asking functions where the mixers of this class look them up; raises before anything is changed."""
    module = sys.modules[base.__module__]
    known = inspect.unwrap(base.forward).__code__.co_names
    missing = [name for name in kind.functions if not hasattr(module, name) or name not in known]
    if missing:
        raise ValueError(f"{base.__name__} of this version of Transformers does not call {missing[0]}; use 5.22")
    places: list[tuple[Any, str, Callable[..., Any]]] = [(module, *item) for item in kind.functions.items()]
    if kind.forward is not None:
        places.append((base, "forward", kind.forward))
    if kind.norm is not None:
        gated = [one for name, one in vars(module).items() if name.endswith("RMSNormGated")]
        places += [(one, "forward", kind.norm) for one in gated]
    for place, name, ours in places:
        theirs = getattr(place, name)
        if not hasattr(theirs, "exchanged"):
            setattr(place, name, exchangeable(theirs, ours))


def switch_over(mixer: nn.Module) -> None:
    """From now on this mixer runs on our kernels, wherever its input is on a CPU."""
    if not hasattr(mixer, HOOKS):
        before = mixer.register_forward_pre_hook(_enter, with_kwargs=True)
        after = mixer.register_forward_hook(_leave, always_call=True)
        setattr(mixer, HOOKS, (before, after))


def switch_back(mixer: nn.Module) -> bool:
    """Undo `switch_over`; returns whether there was something to undo."""
    hooks = getattr(mixer, HOOKS, ())
    for hook in hooks:
        hook.remove()
    if hooks:
        delattr(mixer, HOOKS)
    return bool(hooks)


class ExchangedLinear(Linear):
    """What was an `nn.Linear`; a class of its own, so that it can be one again."""


def exchange_products(model: nn.Module) -> int:
    """Send linear maps to oneDNN where MKL is slow; returns how many."""
    kinds = (nn.Linear, ExchangedLinear)
    found = [one for one in model.modules() if type(one) in kinds] if prefers_onednn() else []
    for one in found:
        one.__class__ = ExchangedLinear
    return len(found)


def restore_products(model: nn.Module) -> None:
    for one in model.modules():
        if type(one) is ExchangedLinear:
            one.__class__ = nn.Linear  # type: ignore[assignment]


def _enter(mixer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    x = args[0] if args else kwargs["hidden_states"]
    _check_cache(mixer, x, kwargs.get("cache_params", kwargs.get("past_key_values")))
    RUNNING.ours = x.device.type == "cpu"


def _leave(mixer: nn.Module, args: tuple[Any, ...], output: Any) -> None:
    RUNNING.ours = False


def _check_cache(mixer: Any, x: torch.Tensor, cache: Any) -> None:
    """Refuse a cache with the state of another mixer, before anything is written to it."""
    found = mixer_class(mixer)
    if cache is None or found is None:
        return
    if hasattr(cache, "linear_cache"):
        state = cache.get_linear_cache(mixer.layer_idx)
    elif mixer.layer_idx < len(cache.layers):
        state = cache.get_recurrent_state(mixer.layer_idx, state_idx=0)
    else:
        raise ValueError(
            f"this cache is of another model: it has {len(cache.layers)} layers, none for layer {mixer.layer_idx}"
        )
    expected = (x.shape[0], *(getattr(mixer, name) for name in found[1].state))
    if state is not None and tuple(state.shape) != expected:
        raise ValueError(
            f"this cache is of another model or batch: layer {mixer.layer_idx} has states {expected}, "
            f"the cache holds {tuple(state.shape)}"
        )
