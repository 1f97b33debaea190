"""Whether a call is computed here and now, traced by a compiler, or transformed by torch.func."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch._C import _functorch
from torch.autograd import forward_ad
from torch.nn import Parameter

from .shapes import Tensor

Function = TypeVar("Function", bound=Callable[..., object])


def asked_while_tracing(function: Function) -> Function:
    """Dynamo calls `function` and takes its answer for a constant.

    As torch.compiler.assume_constant_result, without importing the compiler, which takes more than a second.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


@asked_while_tracing
def transformed() -> bool:
    """Whether `vmap`, `grad` or `jvp` of torch.func, or forward-mode differentiation, is at work.

    A compiler asks this while it traces, inside the transforms that it meets.
    """
    return _functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0


def has_tangent(*tensors: Tensor | None) -> bool:
    """Whether one of these tensors carries a forward-mode derivative."""
    if forward_ad._current_level < 0:
        return False
    return any(x is not None and forward_ad.unpack_dual(x).tangent is not None for x in tensors)


def eager(*tensors: Tensor | None) -> bool:
    """Whether nothing traces or transforms this call, and these tensors are plain numbers in memory."""
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():
        return False
    if torch._C._get_tracing_state() is not None or _functorch.peek_interpreter_stack() is not None:
        return False
    for x in tensors:  # noqa: SIM110 (this runs at every call, and a generator would take twice as long)
        if x is not None and not _plain(x):
            return False
    return True


def _plain(x: Tensor) -> bool:
    """No subclass, no batch of `vmap`, no lazy negation bit, no zeros without memory."""
    known = type(x) is Tensor or type(x) is Parameter
    if not known or x.is_neg() or x._is_zerotensor():
        return False
    return not (_functorch.is_batchedtensor(x) or _functorch.is_legacy_batchedtensor(x))
