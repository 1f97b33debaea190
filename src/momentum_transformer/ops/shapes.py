"""Tensor shapes in signatures: `Float[Tensor, "b h n d"]`.

With jaxtyping installed (the `dev` extra) the annotations are checked while the tests run. Users do not need
it: without it, each annotation is a plain `Tensor`.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING or find_spec("jaxtyping"):
    from jaxtyping import Bool, Float, Int
else:

    class _AnyShape:
        def __class_getitem__(cls, item: Any) -> Any:
            return item[0]

    Bool = Float = Int = _AnyShape

__all__ = ["Bool", "Float", "Int", "Tensor"]
