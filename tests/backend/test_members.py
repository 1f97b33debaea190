"""The native kernels for every member of the family equal the token form; the same bits for any number of threads."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from momentum_transformer import RecurrentState, recurrent_attention
from momentum_transformer.backend.cpu.recurrent_operator import segment
from tests import family
from tests.family import HIDDEN, MEMBERS, NARROW, TOLERANCE, needs_native
from tests.ops.cases import assert_all_close
from tests.ops.test_family import everything, some_state

pytestmark = needs_native
SEGMENT = segment(family.E, 2)


def outputs(given: dict[str, Any], state: RecurrentState | None = None, **options: Any) -> dict[str, Tensor]:
    """y and the state after the last token, where no gradient is wanted."""
    with torch.no_grad():
        y, after = recurrent_attention(**given, state=state, return_state=True, **options)
    return {"y": y} | {f"final {name}": x for name, x in after._asdict().items() if x is not None}


def assert_same(found: dict[str, Tensor], wanted: dict[str, Tensor], tolerance: float) -> None:
    assert list(found) == list(wanted)
    assert_all_close(list(found.values()), list(wanted.values()), list(found), tolerance)


def double(x: Any) -> Any:
    return x.detach().double().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x


@pytest.mark.grid
@pytest.mark.kernels
@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize("member", MEMBERS)
def test_native_equals_the_token_form(member: str, hidden: str) -> None:
    """From nothing and from a state, in float32 and float64, with all gradients and without."""
    single = family.inputs(member, dtype=torch.float32)
    exact = {name: double(x) for name, x in single.items()}
    options = HIDDEN[hidden]
    for state in (None, some_state(member, torch.float32)):
        before = None if state is None else RecurrentState(*map(double, state))
        wanted = everything(exact, before, **options, backend="recurrent")
        assert_same(everything(exact, before, **options, backend="native"), wanted, TOLERANCE[torch.float64])
        assert_same(everything(single, state, **options, backend="native"), wanted, TOLERANCE[torch.float32])
        plain = {name: x for name, x in wanted.items() if not name.startswith("gradient")}
        assert_same(outputs(exact, before, **options, backend="native"), plain, TOLERANCE[torch.float64])
        assert_same(outputs(single, state, **options, backend="native"), plain, TOLERANCE[torch.float32])


@pytest.mark.kernels
@pytest.mark.parametrize("n", [1, 2, 31, 32, 33, SEGMENT, SEGMENT + 1, 2 * SEGMENT + 33, 300])
@pytest.mark.parametrize("member", ["gated delta", "everything"])
def test_any_length_works_natively(member: str, n: int) -> None:
    given, state = family.inputs(member, n), some_state(member)
    assert_same(everything(given, state, backend="native"), everything(given, state, backend="chunked"), 1e-12)


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
    return {name: x.to(dtype).requires_grad_() for name, x in given.items()}


@pytest.mark.kernels
@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("heads", [1, 3])
def test_the_number_of_threads_does_not_change_a_bit_of_any_member(heads: int) -> None:
    given = wide_inputs(heads, SEGMENT + 40, 20, 150, torch.float32)
    found = []
    for count in (1, 2, 5):  # one head: threads share its columns
        torch.set_num_threads(count)
        found.append(everything(given, backend="native"))
    for other in found[1:]:
        assert all(torch.equal(x, other[name]) for name, x in found[0].items())


@pytest.mark.kernels
@pytest.mark.parametrize(("d", "width"), [(9, 1), (9, 7), (9, 16), (9, 24), (9, 40), (9, 70), (16, 16), (64, 64)])
def test_every_instruction_set_knows_the_family(instruction_set: str, d: int, width: int) -> None:
    assert instruction_set
    for dtype in (torch.float64, torch.float32):
        given = wide_inputs(2, 41, d, width, dtype)  # a block of pairs, and one that is odd
        exact = {name: double(x) for name, x in given.items()}
        for names in ({"alpha", "eta", "delta"}, {"alpha"}, set(given)):
            chosen = {"q", "k", "v"} | names
            found = everything({name: given[name] for name in sorted(chosen)}, backend="native")
            wanted = everything({name: exact[name] for name in sorted(chosen)}, backend="recurrent")
            assert_same(found, wanted, TOLERANCE[dtype])


@pytest.mark.kernels
@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("member", ["KDA", "everything"])
def test_narrow_inputs_of_any_layout_are_computed_in_float32(member: str, dtype: torch.dtype) -> None:
    given = family.inputs(member, dtype=dtype)
    turned = {
        name: x.detach().mT.contiguous().mT for name, x in given.items() if isinstance(x, Tensor) and x.ndim == 4
    }
    given |= {name: x.requires_grad_() for name, x in turned.items()}
    wide = given
    wide = {name: double(x) for name, x in wide.items()}
    found, wanted = everything(given, backend="native"), everything(wide, backend="recurrent")
    assert found["y"].dtype == found["gradient of k"].dtype == dtype
    assert_same(found, wanted, 2e-2 if dtype == torch.bfloat16 else 2e-3)


@pytest.mark.kernels
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


@pytest.mark.kernels
@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_decays_of_nothing_and_of_all_are_exact(alpha: float, beta: float) -> None:
    given = wide_inputs(2, 70, 8, 8, torch.float32)
    for name, value in (("alpha", alpha), ("beta", beta)):
        given[name] = torch.full_like(given[name], value, requires_grad=True)
    exact = {name: double(x) for name, x in given.items()}
    assert_same(everything(given, backend="native"), everything(exact, backend="recurrent"), 1e-5)


def test_a_decay_near_one_keeps_its_digits() -> None:
    """Rounded to float32, 1 - α would be wrong in its second digit."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, 3000, 8, generator=generator, dtype=torch.float64) for _ in range(3))
    options = {"alpha": 1 - 3e-7, "beta": 1 - 1e-6, "gamma": 1e-3}
    narrow: dict[str, Any] = {name: x.float().requires_grad_() for name, x in (("q", q), ("k", k), ("v", v))} | options
    exact = {name: double(x) for name, x in narrow.items()}
    assert_same(everything(narrow, backend="native"), everything(exact, backend="chunked"), 1e-5)


def test_equal_keys_at_full_strength_stay_exact_natively() -> None:
    k = torch.nn.functional.normalize(torch.ones(1, 1, 64, 8, dtype=torch.float64), dim=-1)
    v = torch.randn(1, 1, 64, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    given = {
        "q": k.clone().requires_grad_(),
        "k": k.requires_grad_(),
        "v": v.requires_grad_(),
        "eta": 2.0,
        "delta": 1.0,
    }
    assert_same(everything(given, backend="native"), everything(given, backend="recurrent"), 1e-12)


@pytest.mark.parametrize(
    "member",
    [
        "linear a token",
        "momentum a token",
        "slow decay",
        "slow channels",
        "channels and momentum",
        "delta",
        "gated delta",
    ],
)
def test_a_million_tokens_keep_five_digits(member: str) -> None:
    """Outputs and all gradients in float32, against float64."""
    generator = torch.Generator().manual_seed(0)
    n = 2**20
    q, k, v = (torch.randn(1, 1, n, 4, generator=generator) for _ in range(3))
    share = {name: torch.rand(1, 1, n, generator=generator) for name in ("alpha", "beta", "eta", "gamma")}
    unit = torch.nn.functional.normalize(k, dim=-1)
    slowness = torch.tensor([0.0, 1e-6, 1e-4, 0.5])  # the slowest channel forgets nothing
    given = {
        "linear a token": {"k": k.abs(), "eta": share["eta"]},
        "momentum a token": {"k": k.abs(), "beta": share["beta"], "gamma": share["gamma"]},
        "slow decay": {"k": k, "alpha": 1 - 1e-4 * share["alpha"]},
        "slow channels": {"k": k.abs(), "alpha": 1 - slowness * share["alpha"][..., None]},
        "channels and momentum": {
            "k": k.abs(),
            "alpha": 1 - slowness * share["alpha"][..., None],
            "beta": share["beta"],
            "gamma": share["gamma"],
        },
        "delta": {"k": unit, "eta": share["eta"], "delta": 1.0},
        "gated delta": {"k": unit, "eta": share["eta"], "alpha": 0.5 + 0.5 * share["alpha"], "delta": 1.0},
    }[member]
    assert_digits({"q": q.abs(), "v": v + 1} | given, 1e-5)


def assert_digits(given: dict[str, Any], share: float) -> None:
    """How far float32 may be from float64."""
    narrow = {name: x.requires_grad_() if isinstance(x, Tensor) else x for name, x in given.items()}
    found = everything(narrow, backend="native")
    wanted = everything({name: double(x) for name, x in narrow.items()}, backend="native")
    for name, x in found.items():
        assert (x.double() - wanted[name]).norm() <= share * wanted[name].norm(), name


@pytest.mark.parametrize(
    "member", ["hardly a decay", "a gate at one", "momentum under a gate", "channels", "momentum under channels"]
)
def test_decays_near_one_keep_digits_as_no_decay_does(member: str) -> None:
    generator = torch.Generator().manual_seed(0)
    n = 2**16
    q, k, v = (torch.rand(1, 1, n, 4, generator=generator) for _ in range(3))
    share = torch.rand(1, 1, n, generator=generator)
    channels = torch.tensor([0.0, 1e-6, 1e-6, 0.5])
    given = {
        "hardly a decay": {"alpha": 1 - 1e-6},
        "a gate at one": {"alpha": torch.where(share < 1e-4, 0.5, 1.0)},
        "momentum under a gate": {"alpha": 1 - 1e-6 * share, "beta": share},
        "channels": {"alpha": 1 - channels * share[..., None]},
        "momentum under channels": {"alpha": 1 - channels * share[..., None], "beta": share},
    }[member]
    assert_digits({"q": q, "k": k, "v": v} | given, 2e-6)


@pytest.mark.parametrize("name", ["q", "k", "v", "alpha"])
def test_a_nan_reaches_no_gradient_beyond_its_chunk_and_its_document(name: str) -> None:
    given = {key: x.detach().clone() for key, x in wide_inputs(1, 128, 4, 4, torch.float64).items()}
    given[name][:, :, 70] = torch.nan
    given = {key: x.requires_grad_() for key, x in given.items() if key in ("q", "k", "v", "alpha")}
    document = torch.arange(128)[None] == 77  # a chunk begins with it, too
    native, exact = (everything(given, reset=document, backend=form) for form in ("native", "recurrent"))
    beyond = torch.ones(128, dtype=torch.bool)
    beyond[64:77] = False
    for key, wanted in exact.items():
        found = native[key]
        if not key.startswith("final"):
            found, wanted = found[:, :, beyond], wanted[:, :, beyond]
        assert torch.equal(found.isnan(), wanted.isnan()), key


@pytest.mark.kernels
@pytest.mark.parametrize("channels", [False, True])
def test_a_gate_that_closes_and_opens_is_summed_right(channels: bool) -> None:
    """Segments with slow decays and with fast ones, documents, masks and a state, one after the other."""
    generator = torch.Generator().manual_seed(0)
    n = 1100
    q, k, v = (torch.randn(1, 2, n, width, generator=generator, dtype=torch.float64) for width in (5, 5, 3))
    slow = (torch.arange(n) // 100 % 3 > 0) | (torch.rand(1, 2, n, generator=generator) > 0.1)
    alpha = torch.where(slow, 1 - 1e-6 * torch.rand(1, 2, n, generator=generator), 0.6).double()
    if channels:
        alpha = torch.stack([torch.ones_like(alpha), alpha, alpha.flip(2), alpha**2, 0.1 * alpha], -1)
    given = {"q": q, "k": k, "v": v, "alpha": alpha, "beta": torch.rand(1, 2, n, generator=generator).double()}
    given = {name: x.requires_grad_() for name, x in given.items()}
    state = RecurrentState(*(torch.randn(1, 2, 5, 3, generator=generator, dtype=torch.float64) for _ in range(2)))
    for x in (state.s, state.m):
        assert x is not None
        x.requires_grad_()
    options = {"reset": torch.rand(1, n) < 0.002, "key_mask": torch.rand(1, n) > 0.01}
    for names in ({"beta"}, set()):
        chosen = {name: x for name, x in given.items() if name not in names}
        before = RecurrentState(state.s, None if names else state.m)
        for hidden in ({}, options):
            found, wanted = (everything(chosen, before, **hidden, backend=form) for form in ("native", "chunked"))
            assert_same(found, wanted, 1e-12)


def operands(q: Tensor, **changed: Any) -> tuple[Any, ...]:
    """The arguments of `momentum::recurrent` for a gated delta rule."""
    gate = torch.full(q.shape[:3], 0.5)
    inputs: dict[str, Any] = {"q": q, "k": q, "v": q, "erase": None, "alpha": gate, "beta": None, "gamma": None}
    inputs |= {"eta": gate, "delta": gate, "lookahead": None, "s": None, "z": None}
    inputs |= {"reset": None, "token_index": None, "token_count": None}
    return *(inputs | changed).values(), False, False, 0.0, False


@pytest.mark.kernels
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"eta": torch.ones(1, 2, 9)}, "eta does not fit q"),
        ({"eta": torch.ones(3).double()}, "one or one a head"),
        ({"eta": torch.ones(1, 2, 10).double()}, "eta does not fit q"),
        ({"s": torch.zeros(1, 2, 2, 8, 8)}, "the state must be"),
        ({"erase": torch.ones(1, 2, 5, 8)}, "erase do not fit"),
        ({"k": torch.ones(1, 2, 10, 8).double()}, "one dtype"),
        ({"v": torch.ones(2, 10, 8)}, "four axes"),
        ({"reset": torch.zeros(1, 9, dtype=torch.bool)}, "reset must be"),
        ({"token_index": torch.zeros(1, 10, dtype=torch.int32)}, "come together"),
        (
            {
                "token_index": torch.full((1, 10), 10, dtype=torch.int32),
                "token_count": torch.ones(1, dtype=torch.int32),
            },
            "token_index must be 0 to 9",
        ),
        (
            {"token_index": torch.zeros(1, 10, dtype=torch.int32), "token_count": torch.full((1,), 11).int()},
            "token_count must be 0 to 10",
        ),
    ],
)
def test_the_operator_refuses_what_it_would_read_beyond(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        torch.ops.momentum.recurrent(*operands(torch.randn(1, 2, 10, 8), **changed))


@pytest.fixture
def filled_memory() -> Iterator[None]:
    """New tensors without values are full of NaN."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.kernels
@pytest.mark.usefixtures("filled_memory")
def test_an_erase_without_a_delta_gets_gradients_of_zero() -> None:
    *inputs, elu, normalize, eps, _ = operands(torch.randn(1, 2, 70, 8), erase=torch.randn(1, 2, 70, 8), delta=None)
    y, *saved, _, _ = torch.ops.momentum.recurrent(*inputs, elu, normalize, eps, False)
    flat = [y, None, None, *inputs, y, *saved, elu, normalize, eps, [True] * 6]
    d_erase = torch.ops.momentum.recurrent_backward(*flat)[3]
    assert torch.equal(d_erase, torch.zeros_like(y))


def test_the_backward_operator_refuses_a_gradient_of_no_denominator() -> None:
    *inputs, elu, normalize, eps, _ = operands(torch.randn(1, 2, 70, 8))
    y, *saved, _, _ = torch.ops.momentum.recurrent(*inputs, elu, normalize, eps, False)
    with pytest.raises(ValueError, match="dz_after must be None"):
        torch.ops.momentum.recurrent_backward(
            y, None, torch.ones(1, 2, 8), *inputs, y, *saved, elu, normalize, eps, [True] * 6
        )


@pytest.mark.parametrize("which", range(7))
def test_the_backward_operator_refuses_what_does_not_fit(which: int) -> None:
    *inputs, elu, normalize, eps, _ = operands(torch.randn(1, 2, 70, 8))
    y, *saved, _, _ = torch.ops.momentum.recurrent(*inputs, elu, normalize, eps, False)
    state = torch.zeros(1, 2, 1, 8, 8)
    flat = [y, state, None, *inputs, y, *saved, elu, normalize, eps, [True] * 6]
    torch.ops.momentum.recurrent_backward(*flat)
    wrong = {
        0: y[:, :, 1:],
        1: state[..., 1:],
        3: y[..., 1:],
        18: y[:, :, 1:],
        20: saved[1][..., 1:],
        21: saved[2][:, :, 1:],
    }
    wrong[7] = torch.ones(1, 2, 69)
    at, value = list(wrong.items())[which]
    flat[at] = value
    with pytest.raises(ValueError, match=r"must be|fit"):
        torch.ops.momentum.recurrent_backward(*flat)
