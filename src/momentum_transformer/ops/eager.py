"""Whether a call is computed here and now, or traced."""

import torch
from torch._C import _functorch
from torch.nn import Parameter

from .shapes import Tensor


def eager(*tensors: Tensor | None) -> bool:
    """Nobody traces or transforms this call, and these tensors are what they seem: plain numbers in memory."""
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():
        return False
    if torch._C._get_tracing_state() is not None or _functorch.peek_interpreter_stack() is not None:
        return False
    return all(x is None or _plain(x) for x in tensors)


def _plain(x: Tensor) -> bool:
    """No subclass, no batch of `vmap`, no number whose sign is still to be turned."""
    known = type(x) is Tensor or type(x) is Parameter
    return known and not (x.is_neg() or _functorch.is_batchedtensor(x) or _functorch.is_legacy_batchedtensor(x))
