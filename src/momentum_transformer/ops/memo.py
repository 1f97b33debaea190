"""A memo of small tensors that depend on plain numbers alone."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from .tracing import eager

Tensors = TypeVar("Tensors", bound=tuple[Any, ...])
MOST = 256  # entries; beyond, all are dropped
_MEMO: dict[Any, Any] = {}


def memo(key: Any, make: Callable[[], Tensors]) -> Tensors:
    """What was made before for this key. Inside a trace it is made anew: tensors of outside do not belong there."""
    if not eager():
        return make()
    found: Tensors | None = _MEMO.get(key)
    if found is None:
        with torch.inference_mode(False), torch.no_grad():
            found = make()
        if all(type(part) is torch.Tensor for part in found if isinstance(part, torch.Tensor)):
            if len(_MEMO) >= MOST:
                _MEMO.clear()
            _MEMO[key] = found
    return found
