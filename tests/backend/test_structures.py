"""What C++ and Python share is the same on both sides: every field of every structure, every number of every name."""

import ctypes
import re
from typing import Any

import pytest

from momentum_transformer.backend.cpu import library, repeated_step
from momentum_transformer.backend.cpu.build import VARIANTS
from momentum_transformer.backend.cpu.causal_operator import DTYPES, SEGMENT
from momentum_transformer.backend.cpu.convolution_operator import MOST_TAPS
from momentum_transformer.backend.cpu.recurrent_operator import BLOCK
from momentum_transformer.backend.cpu.row_norm_operator import NORM_TOKENS
from momentum_transformer.backend.cpu.step_operator import FEATURES
from momentum_transformer.bench import limits
from momentum_transformer.decoding.program import ACTIVATIONS, GATES, PANEL
from momentum_transformer.ops.coefficients import Coefficients
from momentum_transformer.ops.row_norm import GATINGS

from .structures import code, constants, enumerations, mirrored, structures

HEADERS = ("problem.h", "program.h", "surroundings.h")
DECLARED = structures(HEADERS)
NUMBERED = enumerations(HEADERS)
# enumeration → what stands for it in Python, in its order
NAMES = {
    "Dtype": [str(dtype).removeprefix("torch.") for dtype in DTYPES],
    "Features": ["given", "elu", "l2"],
    "Activation": [name or "none" for name in ACTIVATIONS],
    "GateKind": list(GATES),
    "Gating": list(GATINGS),
    "TaskKind": ["linear", "step", "cached attention", "residual norm", "convolution", "gates", "norm and gate"],
    "CoefficientName": [*list(Coefficients._fields)[:6], "coefficients"],
}


@pytest.mark.parametrize("name", sorted(set(DECLARED) - {"Heads"}))
def test_a_structure_has_the_same_fields_in_python(name: str) -> None:
    base, fields = DECLARED[name]
    inherited = DECLARED[base][1] if base == "Heads" else []  # of a base that Python has no class for
    assert mirrored(name) == [*inherited, *fields]


def test_every_structure_of_python_is_one_of_the_headers() -> None:
    kinds = {
        name for name, kind in vars(library).items() if isinstance(kind, type) and issubclass(kind, ctypes.Structure)
    }
    assert kinds == set(DECLARED) - {"Heads"}


def test_every_enumeration_has_a_counterpart() -> None:
    assert set(NUMBERED) == set(NAMES)
    assert len(FEATURES) == len(NAMES["Features"])
    assert len(library.TASKS) == len(NAMES["TaskKind"])


@pytest.mark.parametrize("name", sorted(NUMBERED))
def test_an_enumeration_has_the_order_of_python(name: str) -> None:
    ends = [word.lower().replace("_", " ") for word in NUMBERED[name]]
    assert all(end.endswith(known) for end, known in zip(ends, NAMES[name], strict=True)), (ends, NAMES[name])


def test_kinds_of_tasks_are_their_structures() -> None:
    assert [kind.__name__.lower() for kind in library.TASKS] == [name.replace(" ", "") for name in NAMES["TaskKind"]]


def test_constants_are_equal() -> None:
    found = constants((*HEADERS, "convolution.h", "linear.h", "sequence.h", "family_rows.h", "kernel.cpp"))
    assert found["NORM_TOKENS"] == NORM_TOKENS
    assert found["MOST_TAPS"] == MOST_TAPS
    assert found["PANEL_COLUMNS"] == PANEL
    assert ("gates", "Gate", found["MOST_GATES"]) in mirrored("Gates")
    assert found["BLOCK"] == BLOCK
    assert SEGMENT % BLOCK == 0
    assert found["CHUNK"] == limits.CHUNK
    assert found["OUT_OF_RANGE"] == repeated_step.OUT_OF_RANGE


def test_bits_of_variants_have_the_order_of_python() -> None:
    body = code("dispatch.cpp").split("int momentum_variants() {")[1]
    first = re.search(r"int found = (\d+);", body)
    assert first is not None
    bits = {"generic": int(first[1])}
    for name, bit in re.findall(r'if \(__builtin_cpu_supports\("(\w+)"\).*?found \|= (\d+);', body, flags=re.DOTALL):
        bits[name.removesuffix("f")] = int(bit)
    assert bits == {name: 1 << place for place, name in enumerate(VARIANTS)}


def test_a_step_is_packed_field_by_field() -> None:
    def letters(kind: Any) -> str:
        if issubclass(kind, ctypes.Array):
            return letters(kind._type_) * kind._length_
        if issubclass(kind, ctypes.Structure):
            return "".join(letters(field[1]) for field in kind._fields_)
        return "d" if kind is ctypes.c_double else "q"

    packed = re.sub(r"(\d+)(\w)", lambda found: int(found[1]) * found[2], repeated_step.LAYOUT.format)
    assert packed == letters(library.Step)
