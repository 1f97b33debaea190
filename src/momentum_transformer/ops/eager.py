"""Whether a call is computed here and now, or traced."""

import torch
from torch.nn import Parameter

from .shapes import Tensor


def eager(*tensors: Tensor | None) -> bool:
    """Nobody traces this call, and these tensors are what they seem: plain ones, with numbers in memory."""
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():
        return False
    return all(x is None or type(x) is Tensor or type(x) is Parameter for x in tensors)
