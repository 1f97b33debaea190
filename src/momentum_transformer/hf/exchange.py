"""How a mixer comes to our kernels: at each call, Transformers' functions ask whether the mixer that calls wants ours.

Transformers looks its kernel functions up in the module of the mixer at each call. There we put functions that call
its own, unless a mixer that was switched over is running in this thread. Nothing else is touched.
"""

import functools
import inspect
import logging
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from ..backend.products import prefers_onednn
from ..layers.linear_layer import Linear
from .call_checks import PACKING, Layout, Memory, check_call_of_mixer, layout_of, memory_of
from .served_mixers import Kind, keeps_packing, kind_of, mixer_class

HOOKS = "momentum_transformer_hooks"  # the attribute of a module that is switched over or watched
logger = logging.getLogger(__name__)


class _Running(threading.local):
    def __init__(self) -> None:  # once in each thread; a compiler wants attributes that are there before it looks
        self.ours = False
        self.packing: dict[str, Any] = {}


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


@dataclass
class Hooks:
    """What `switch_over` puts on a module; a module that is loaded from a pickle finds its functions exchanged.

    Args:
        handles: of the hooks themselves.
        base: the class of a mixer.
        memory: what a mixer keeps in a cache.
        layout: what all layers of a model keep.
    """

    handles: tuple[RemovableHandle, ...]
    base: type[nn.Module] | None = None
    memory: Memory | None = None
    layout: Layout | None = None

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        kind = None if self.base is None else kind_of(self.base)
        if self.base is None or kind is None:
            return
        try:
            prepare(self.base, kind)
        except ValueError as error:  # an optional speed-up must not keep a model from being loaded
            logger.warning("%s is not accelerated: %s", self.base.__name__, error)


def switch_over(mixer: nn.Module, base: type[nn.Module]) -> None:
    """From now on this mixer, of this class, runs on our kernels, wherever its input is on a CPU."""
    if not hasattr(mixer, HOOKS):
        before = mixer.register_forward_pre_hook(_enter, with_kwargs=True)
        after = mixer.register_forward_hook(_leave, always_call=True)
        setattr(mixer, HOOKS, Hooks((before, after), base, memory_of(mixer)))


def watch(model: nn.Module) -> None:
    """Calls of the models of Transformers in here are checked before they begin."""
    from transformers import PreTrainedModel

    models = [one for one in model.modules() if isinstance(one, PreTrainedModel) and not hasattr(one, HOOKS)]
    for one in models:
        inner = [other for other in one.modules() if other is not one and isinstance(other, PreTrainedModel)]
        if keeps_packing(one):
            before = one.register_forward_pre_hook(_keep_packing, with_kwargs=True)
            setattr(one, HOOKS, Hooks((before, one.register_forward_hook(_forget_packing, always_call=True))))
        elif _has_mixers(one) and not any(_has_mixers(other) for other in inner):
            before = one.register_forward_pre_hook(_check_call, with_kwargs=True)
            setattr(one, HOOKS, Hooks((before,), layout=layout_of(one)))


def switch_back(module: nn.Module) -> bool:
    """Undo `switch_over` and `watch`; returns whether there was something to undo."""
    hooks = getattr(module, HOOKS, None)
    if hooks is None:
        return False
    for hook in hooks.handles:
        hook.remove()
    delattr(module, HOOKS)
    return True


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


def _has_mixers(module: nn.Module) -> bool:
    return any(mixer_class(one) is not None for one in module.modules())


def _enter(mixer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    x = args[0] if args else kwargs["hidden_states"]
    check_call_of_mixer(getattr(mixer, HOOKS).memory, x.shape[0], kwargs)
    RUNNING.ours = x.device.type == "cpu"


def _leave(mixer: nn.Module, args: tuple[Any, ...], output: Any) -> None:
    RUNNING.ours = False


def _check_call(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    kwargs = {**RUNNING.packing, **kwargs}
    getattr(model, HOOKS).layout.check(args, kwargs)
    return args, kwargs


def _keep_packing(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """What this model keeps to itself goes to the one inside it."""
    RUNNING.packing = {name: kwargs[name] for name in PACKING if kwargs.get(name) is not None}


def _forget_packing(model: nn.Module, args: tuple[Any, ...], output: Any) -> None:
    RUNNING.packing = {}
