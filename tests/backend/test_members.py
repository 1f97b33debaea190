"""The native kernels for every member of the family equal the token form; the same bits for any number of threads."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from momentum_transformer import RecurrentState, recurrent_attention
from momentum_transformer.backend.cpu.causal_operator import SEGMENT
from momentum_transformer.backend.cpu.library import Missing, native
from momentum_transformer.backend.cpu.recurrent_operator import forward
from momentum_transformer.ops.coefficients import Coefficients
from tests import family
from tests.family import MEMBERS
from tests.ops.cases import assert_all_close
from tests.ops.test_family import HIDDEN, some_state

pytestmark = pytest.mark.skipif(isinstance(native(), Missing), reason=f"native kernels: {native()}")
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}


def outputs(given: dict[str, Any], state: RecurrentState | None = None, **options: Any) -> dict[str, Tensor]:
    """y and the state after the last token."""
    with torch.no_grad():
        y, after = recurrent_attention(**given, state=state, return_state=True, **options)
    return {"y": y} | {f"final {name}": x for name, x in after._asdict().items() if x is not None}


def assert_same(found: dict[str, Tensor], wanted: dict[str, Tensor], tolerance: float) -> None:
    assert list(found) == list(wanted)
    assert_all_close(list(found.values()), list(wanted.values()), list(found), tolerance)


def double(x: Any) -> Any:
    return x.detach().double() if isinstance(x, Tensor) else x


@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize("member", MEMBERS)
def test_native_equals_the_token_form(member: str, hidden: str) -> None:
    """From nothing and from a state, in float32 and float64."""
    single = family.inputs(member, dtype=torch.float32)
    exact = {name: double(x) for name, x in single.items()}
    for state in (None, some_state(member, torch.float32)):
        before = None if state is None else RecurrentState(*map(double, state))
        wanted = outputs(exact, before, **HIDDEN[hidden], backend="recurrent")
        assert_same(outputs(single, state, **HIDDEN[hidden], backend="native"), wanted, TOLERANCE[torch.float32])
        assert_same(outputs(exact, before, **HIDDEN[hidden], backend="native"), wanted, TOLERANCE[torch.float64])


@pytest.mark.parametrize("n", [1, 2, 31, 32, 33, SEGMENT, SEGMENT + 1, 2 * SEGMENT + 33])
@pytest.mark.parametrize("member", ["gated delta", "everything"])
def test_any_length_works_natively(member: str, n: int) -> None:
    given, state = family.inputs(member, n), some_state(member)
    assert_same(outputs(given, state, backend="native"), outputs(given, state, backend="chunked"), 1e-12)


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def wide_inputs(heads: int, n: int, d: int, e: int, dtype: torch.dtype) -> dict[str, Any]:
    """Momentum delta with several tiles of columns."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, heads, n, width, generator=generator) for width in (d, d, e))
    given = {"q": q, "k": torch.nn.functional.normalize(k, dim=-1), "v": v}
    for name in ("alpha", "beta", "gamma", "eta", "delta"):
        given[name] = torch.rand(1, heads, n, generator=generator)
    return {name: x.to(dtype) for name, x in given.items()}


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("heads", [1, 3])
def test_the_number_of_threads_does_not_change_a_bit_of_any_member(heads: int) -> None:
    given = wide_inputs(heads, SEGMENT + 40, 20, 150, torch.float32)
    found = []
    for count in (1, 2, 5):  # one head: threads share its columns
        torch.set_num_threads(count)
        found.append(outputs(given, backend="native"))
    for other in found[1:]:
        assert all(torch.equal(x, other[name]) for name, x in found[0].items())


@pytest.mark.parametrize("width", [1, 7, 16, 24, 40, 70])
def test_every_instruction_set_knows_the_family(instruction_set: str, width: int) -> None:
    assert instruction_set
    for dtype, tolerance in TOLERANCE.items():
        given = wide_inputs(2, 40, 9, width, dtype)
        exact = {name: double(x) for name, x in given.items()}
        for names in ({"alpha", "eta", "delta"}, {"alpha"}, set(given)):
            chosen = {"q", "k", "v"} | names
            found = outputs({name: given[name] for name in chosen}, backend="native")
            assert_same(found, outputs({name: exact[name] for name in chosen}, backend="recurrent"), tolerance)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("member", ["KDA", "everything"])
def test_narrow_inputs_of_any_layout_are_computed_in_float32(member: str, dtype: torch.dtype) -> None:
    given = family.inputs(member, dtype=dtype)
    given = {name: x.mT.contiguous().mT if isinstance(x, Tensor) and x.ndim == 4 else x for name, x in given.items()}
    wide = {name: x.float() if isinstance(x, Tensor) else x for name, x in given.items()}
    found, wanted = outputs(given, backend="native"), outputs(wide, backend="recurrent")
    assert found["y"].dtype == dtype
    assert_same(found, wanted | {"y": wanted["y"].to(dtype)}, 1e-2 if dtype == torch.bfloat16 else 2e-3)


def test_one_token_at_a_time_gives_the_same_as_all_at_once() -> None:
    given = wide_inputs(2, 9, 12, 20, torch.float64)
    whole = outputs(given, backend="native")
    state, steps = None, []
    for t in range(9):
        token = {name: x[:, :, t : t + 1] for name, x in given.items()}
        y, state = recurrent_attention(**token, state=state, return_state=True, backend="native")
        steps.append(y)
    assert state is not None
    found = {"y": torch.cat(steps, 2), "final s": state.s, "final m": state.m}
    assert_same(found, whole, 1e-13)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_decays_of_nothing_and_of_all_are_exact(alpha: float, beta: float) -> None:
    given = wide_inputs(2, 70, 8, 8, torch.float32)
    given |= {"alpha": torch.full_like(given["alpha"], alpha), "beta": torch.full_like(given["beta"], beta)}
    exact = {name: double(x) for name, x in given.items()}
    assert_same(outputs(given, backend="native"), outputs(exact, backend="recurrent"), 1e-5)


def test_a_decay_near_one_keeps_its_digits() -> None:
    """Rounded to float32, 1 - α would be wrong in its second digit."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, 3000, 8, generator=generator, dtype=torch.float64) for _ in range(3))
    options = {"alpha": 1 - 3e-7, "beta": 1 - 1e-6, "gamma": 1e-3}
    narrow = {"q": q.float(), "k": k.float(), "v": v.float()} | options
    exact = {name: double(x) for name, x in narrow.items()}
    assert_same(outputs(narrow, backend="native"), outputs(exact, backend="chunked"), 1e-5)


def test_equal_keys_at_full_strength_stay_exact_natively() -> None:
    k = torch.nn.functional.normalize(torch.ones(1, 1, 64, 8, dtype=torch.float64), dim=-1)
    given = {"q": k, "k": k, "v": torch.randn(1, 1, 64, 8, dtype=torch.float64), "eta": 2.0, "delta": 1.0}
    assert_same(outputs(given, backend="native"), outputs(given, backend="recurrent"), 1e-12)


def test_the_kernels_are_not_called_with_what_they_would_read_beyond() -> None:
    q = torch.randn(1, 2, 10, 8)
    options: dict[str, Any] = {"elu": False, "normalize": False, "eps": 0.0, "return_state": False}
    nothing = (None, None, None)
    with pytest.raises(ValueError, match="eta does not fit q"):
        forward(q, q, q, None, Coefficients(eta=torch.ones(1, 2, 9)), None, None, nothing, **options)
    with pytest.raises(ValueError, match="one or one a head"):
        forward(q, q, q, None, Coefficients(eta=torch.ones(3).double()), None, None, nothing, **options)
    with pytest.raises(ValueError, match="the state must be"):
        forward(q, q, q, None, Coefficients(), q.new_zeros(1, 2, 2, 8, 8), q.new_zeros(1, 2, 8), nothing, **options)
    with pytest.raises(ValueError, match="erase do not fit"):
        forward(q, q, q, q[:, :, :5], Coefficients(), None, None, nothing, **options)
