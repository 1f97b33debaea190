"""The structures, enumerations and constants of native headers, read from their text."""

import ctypes
import re
from pathlib import Path
from typing import Any

from momentum_transformer.backend.cpu import library

NATIVE = Path(library.__file__).parent / "native"
PLAIN = {"int64_t": ctypes.c_int64, "double": ctypes.c_double}


def code(header: str) -> str:
    """A header without its comments."""
    return re.sub(r"//[^\n]*", "", (NATIVE / header).read_text())


def constants(headers: tuple[str, ...]) -> dict[str, int]:
    """Every NAME = number of a `constexpr int64_t`, and every name of an enumeration with its number."""
    declared = re.findall(r"constexpr int64_t ([^;]*);", "".join(map(code, headers)))
    found = {name: int(value) for one in declared for name, value in re.findall(r"\b(\w+) = (\d+)\b(?! *[*+<])", one)}
    for names in enumerations(headers).values():
        found |= {name: number for number, name in enumerate(names)}
    return found


def enumerations(headers: tuple[str, ...]) -> dict[str, list[str]]:
    found = re.findall(r"enum (\w+)[^{]*\{([^}]*)\}", "".join(map(code, headers)))
    return {name: [item.strip() for item in body.split(",") if item.strip()] for name, body in found}


def structures(headers: tuple[str, ...]) -> dict[str, tuple[str, list[tuple[str, Any, int]]]]:
    """Name → base and fields, each a name, its type in ctypes and how many of it there are."""
    known = constants(headers)
    found = {}
    for name, base, body in re.findall(
        r"struct (\w+)(?: : (\w+))? \{(.*?)\n\};", "".join(map(code, headers)), flags=re.DOTALL
    ):
        fields: list[tuple[str, Any, int]] = []
        for declaration in body.split(";"):
            if words := declaration.split():
                kind, *names = [word for word in " ".join(words).replace("*", "* ").split() if word != "const"]
                pointer = kind.endswith("*") or any(word == "*" for word in names)
                for one in (part.strip("* ") for part in " ".join(names).split(",")):
                    size = re.fullmatch(r"(\w+)\[(\w+)\]", one)
                    ctype = ctypes.c_void_p if pointer else PLAIN.get(kind, kind)
                    fields.append((size[1], ctype, known[size[2]]) if size else (one, ctype, 1))
        found[name] = base, fields
    return found


def mirrored(name: str) -> list[tuple[str, Any, int]]:
    """The fields of a structure in library.py in the same form."""
    kind: Any = getattr(library, name)
    fields = []
    for field, ctype in kind._fields_:
        length = getattr(ctype, "_length_", 1)
        inner = ctype._type_ if hasattr(ctype, "_length_") else ctype
        plain = inner in (ctypes.c_void_p, *PLAIN.values())
        fields.append((field, inner if plain else inner.__name__, length))
    return fields
