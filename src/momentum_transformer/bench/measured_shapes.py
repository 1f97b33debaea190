"""What is measured: shapes, and what a shape costs at the least."""

from typing import NamedTuple

from ..errors import UserError

# floating-point operations a token and head, in units of d · e: what the recurrence itself does, whatever form runs.
# Linear: the update of s and its reading, 2 each. Momentum: m ← βm + kvᵀ and s ← s + γm besides.
USEFUL = {"linear": 4, "momentum": 8}


class BenchError(UserError, ValueError):
    """A benchmark that cannot be run as asked; the message is for the user."""


class Shape(NamedTuple):
    """Batch, heads, length, and the width of keys and of values."""

    b: int
    h: int
    n: int
    d: int

    def __str__(self) -> str:
        return f"({self.b}, {self.h}, {self.n}, {self.d})"

    def useful_flops(self, computes: str) -> int:
        """Floating-point operations of one forward pass."""
        return USEFUL[computes] * self.b * self.h * self.n * self.d * self.d

    def bytes(self, size: int = 4) -> int:
        """Bytes of one tensor (b, h, n, d) with elements of this size."""
        return self.b * self.h * self.n * self.d * size


TARGETS = (Shape(64, 8, 128, 32), Shape(10, 8, 784, 32), Shape(4, 8, 3072, 32), Shape(1, 8, 65536, 64))
LENGTHS = tuple(Shape(1, 8, 2**i, 64) for i in range(6, 17))
MEMORY_LENGTHS = LENGTHS[-5:]
FAMILY_SHAPES = (Shape(1, 16, 1024, 128), Shape(1, 16, 4096, 128), Shape(4, 8, 1024, 64), Shape(10, 8, 784, 32))
KDA_SHAPES = FAMILY_SHAPES[:3]
TOKENS = (Shape(1, 16, 1, 128), Shape(4, 8, 1, 64))  # one token after others, of the first and of the third
LONG = tuple(Shape(1, 8, 2**i, 64) for i in (18, 19, 20))


def parse_shape(text: str) -> Shape:
    """`b,h,n,d` as four positive whole numbers."""
    words = text.replace("x", ",").split(",")
    if len(words) != 4 or not all(word.strip().isdecimal() and int(word) for word in words):
        raise BenchError(f"a shape is four positive whole numbers b,h,n,d such as 64,8,128,32, not {text!r}")
    return Shape(*map(int, words))
