"""Small tensors that depend on plain numbers alone: made once, then kept."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch

Tensors = TypeVar("Tensors", bound=tuple[torch.Tensor, ...])
MOST = 256  # entries; beyond, all are forgotten
_KEPT: dict[Any, Any] = {}


def kept(key: Any, make: Callable[[], Tensors]) -> Tensors:
    """The tensors made before for this key. Those that are not plain tensors belong to a trace, and are not kept."""
    if torch.compiler.is_compiling():
        return make()
    found: Tensors | None = _KEPT.get(key)
    if found is None:
        with torch.inference_mode(False), torch.no_grad():
            found = make()
        if all(type(tensor) is torch.Tensor for tensor in found):
            if len(_KEPT) >= MOST:
                _KEPT.clear()
            _KEPT[key] = found
    return found
