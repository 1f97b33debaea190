"""The pickle of a CIFAR-10 batch, opcode by opcode: it runs nothing, and takes time and memory by its length alone.

`pickle` believes what a file says: nine bytes can ask it for gigabytes, and nested values overflow its stack.
"""

import pickletools
from typing import Any

import numpy as np

MOST = 200_000  # opcodes; a batch has 20,000 to 100,000, and each may make an object of 64 bytes out of one
# opcodes whose argument is the value; genops reads no more than there is
VALUES = {
    *("BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "STRING", "BINSTRING", "SHORT_BINSTRING"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
}
CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
# what a batch may name: numpy's array and dtype, and bytes as Python 3 writes them into old pickles
RECONSTRUCT, ENCODE = "numpy.core.multiarray _reconstruct", "_codecs encode"
NAMES = (RECONSTRUCT, ENCODE, "numpy ndarray", "numpy dtype")


class PickleError(Exception):
    """What follows the name of the file in a message."""


class _Name(str):
    """A class or function that the file names."""


class _Made:
    """What the file calls something to make: an array or a dtype, filled later."""

    def __init__(self, name: str, arguments: tuple[Any, ...]) -> None:
        self.name, self.arguments = name, arguments
        self.array: np.ndarray | None = None

    def fill(self, state: Any) -> None:
        if self.name == RECONSTRUCT:
            _, shape, dtype, fortran, content = state
            if not isinstance(dtype, _Made) or dtype.arguments[:1] not in ((b"u1",), ("u1",)):
                raise PickleError("has an array that is not of bytes")
            if isinstance(content, str):
                content = content.encode("latin-1")
            self.array = np.frombuffer(content, np.uint8).reshape(shape, order="F" if fortran else "C")


class _Machine:
    def __init__(self, length: int) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.encodable = length  # characters; so that no file is longer in memory than on disk

    def step(self, name: str, argument: Any) -> None:
        stack = self.stack
        if name in VALUES:
            stack.append(argument)
        elif name in CONSTANTS:
            stack.append(CONSTANTS[name])
        elif name in TUPLES:
            stack[-TUPLES[name] :] = [tuple(self._last(TUPLES[name]))]
        elif name == "MARK":
            self.marks.append(len(stack))
        elif name in ("TUPLE", "LIST", "DICT"):
            items = self._since_mark()
            stack.append(tuple(items) if name == "TUPLE" else items if name == "LIST" else _pairs(items))
        elif name in ("EMPTY_DICT", "EMPTY_LIST"):
            stack.append({} if name == "EMPTY_DICT" else [])
        elif name in ("APPEND", "APPENDS"):
            items = [stack.pop()] if name == "APPEND" else self._since_mark()
            _expect(stack[-1], list).extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = [*self._last(2)] if name == "SETITEM" else self._since_mark()
            del stack[len(stack) - (2 if name == "SETITEM" else 0) :]
            _expect(stack[-1], dict).update(_pairs(items))
        elif name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            self.memo[len(self.memo) if name == "MEMOIZE" else argument] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(self.memo[argument])
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            words = argument if name == "GLOBAL" else " ".join(_expect(part, str) for part in self._pop(2))
            stack.append(_known(words))
        elif name == "REDUCE":
            function, arguments = self._pop(2)
            stack.append(self._call(_expect(function, _Name), _expect(arguments, tuple)))
        elif name == "BUILD":
            state = stack.pop()
            _expect(stack[-1], _Made).fill(state)
        elif name not in ("PROTO", "FRAME", "STOP"):
            raise PickleError(f"has {name.lower()}, which no CIFAR-10 batch needs")

    def _call(self, name: str, arguments: tuple[Any, ...]) -> Any:
        if name != ENCODE:
            return _Made(name, arguments)
        text = _expect(arguments[0], str)
        self.encodable -= len(text)
        if self.encodable < 0:
            raise PickleError("makes more bytes than it has")
        return text.encode("latin-1")

    def _last(self, count: int) -> list[Any]:
        if len(self.stack) - (self.marks[-1] if self.marks else 0) < count:
            raise ValueError("its stack is empty")
        return self.stack[-count:]

    def _pop(self, count: int) -> list[Any]:
        items = self._last(count)
        del self.stack[-count:]
        return items

    def _since_mark(self) -> list[Any]:
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items


def read_pickle(content: bytes) -> dict[Any, Any]:
    """The dictionary in the file, with arrays of bytes as numpy arrays."""
    machine = _Machine(len(content))
    try:
        for done, (opcode, argument, _) in enumerate(pickletools.genops(content)):
            if done == MOST:
                raise PickleError(f"has more than {MOST:,} values, which no CIFAR-10 batch has")
            machine.step(opcode.name, argument)
        values = _expect(machine.stack[-1], dict)
    except PickleError:
        raise
    except (ValueError, TypeError, LookupError, OverflowError, UnicodeError) as error:
        raise PickleError(f"is not a CIFAR-10 batch: {error}") from None
    named = {key.encode() if isinstance(key, str) else key: value for key, value in values.items()}
    return {key: value.array if isinstance(value, _Made) else value for key, value in named.items()}


def _known(words: str) -> _Name:
    name = words.replace("numpy._core", "numpy.core")
    if name not in NAMES:
        module, _, last = words.rpartition(" ")
        raise PickleError(f"asks to run {module}.{last}, which no CIFAR-10 batch needs; it was not run")
    return _Name(name)


def _pairs(items: list[Any]) -> dict[Any, Any]:
    keys, values = items[::2], items[1::2]
    if len(keys) != len(values) or not all(isinstance(key, str | bytes) for key in keys):
        raise ValueError("its dictionary has keys that are no words")
    return dict(zip(keys, values, strict=True))


def _expect(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"it has a {type(value).__name__} in the place of a {kind.__name__}")
    return value
