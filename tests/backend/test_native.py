"""The compiled kernels equal the PyTorch form for every layout, dtype, instruction set and number of threads."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from momentum_transformer import backends, linear_attention, momentum_attention
from momentum_transformer.backend.cpu.build import BuildError, build, compiler
from momentum_transformer.backend.cpu.causal_operator import SEGMENT
from momentum_transformer.backend.cpu.library import Missing, native
from tests.family import TOLERANCE, needs_native

ROOT = Path(__file__).parents[1]
LONG = 5 * SEGMENT + 7  # where sums go from segment to segment


def results(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> list[Tensor]:
    """y, the final state if there is one, and the gradients of q, k, v."""
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    attend = linear_attention if options.get("beta") is None else momentum_attention
    given = {name: value for name, value in options.items() if value is not None}
    out = attend(*leaves, **given)
    parts = [out[0], *out[1]] if isinstance(out, tuple) else [out]
    loss = sum((x.double() * torch.linspace(-1, 1, x.numel()).view_as(x)).sum() for x in parts)
    assert isinstance(loss, Tensor)
    return [*parts, *torch.autograd.grad(loss, leaves)]


def assert_same(found: list[Tensor], wanted: list[Tensor], dtype: torch.dtype) -> None:
    for i, (a, b) in enumerate(zip(found, wanted, strict=True)):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        error = (a.double() - b.double()).abs().max() if a.numel() else torch.tensor(0.0)
        scale = 1 + (b.double().abs().max() if b.numel() else 0)
        assert error <= TOLERANCE[dtype] * scale, f"result {i} is off by {error:.2e}"


@pytest.mark.grid
@pytest.mark.kernels
@needs_native
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("beta", [None, 0.0, 1e-5, 0.01, 0.1, 0.6, 0.9, 0.999])
@pytest.mark.parametrize(
    "shape", [(2, 3, 33, 5, 7), (1, 2, 2 * SEGMENT + 77, 16, 32), (1, 1, 70, 128, 64), (1, 5, LONG, 8, 9)], ids=str
)
@pytest.mark.parametrize("with_state", [False, True])
def test_native_equals_chunked(
    with_state: bool, shape: tuple[int, ...], beta: float | None, dtype: torch.dtype
) -> None:
    b, h, n, d, e = shape
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(b, h, n, width, generator=generator).to(dtype) for width in (d, d, e))
    options = {"beta": beta, "return_state": with_state}
    found, wanted = (results(q, k, v, backend=form, **options) for form in ("native", "chunked"))
    assert_same(found, wanted, dtype)


@needs_native
@pytest.mark.parametrize("beta", [None, 0.6])
def test_long_sums_lose_no_digits(beta: float | None) -> None:
    """Added up in one go, s would be off by 1e-6 after so many tokens, and dq, a small difference, by 2e-4."""
    generator = torch.Generator().manual_seed(0)
    heads = max(4, os.cpu_count() or 1)  # a thread a head: nobody adds up segments beforehand
    q, k, v, dy = (torch.randn(1, heads, 2**16, 16, generator=generator, dtype=torch.float64) for _ in range(4))

    def outputs(dtype: torch.dtype) -> list[Tensor]:
        leaves = [x.to(dtype).requires_grad_() for x in (q, k, v + 0.5)]
        y = linear_attention(*leaves) if beta is None else momentum_attention(*leaves, beta=beta)
        return [y.detach(), *torch.autograd.grad(y, leaves, dy.to(dtype))]

    pairs = zip(outputs(torch.float32), outputs(torch.float64), strict=True)
    of_y, of_q, of_k, of_v = (float((a - b).norm() / b.norm()) for a, b in pairs)
    assert max(of_y, of_v) < 3e-7
    assert of_k < 1e-6
    assert of_q < 6e-5


@needs_native
@pytest.mark.parametrize(("n", "beta"), [(4096, 0.9991), (2**15, 0.9)])
def test_gradients_of_coefficients_lose_no_digits(n: int, beta: float) -> None:
    """β rounded to float32 would lose the digits of 1 - β at every token."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, n, 8, generator=generator, dtype=torch.float64) for _ in range(3))

    def gradients(dtype: torch.dtype) -> list[Tensor]:
        coefficients = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (beta, 0.7)]
        y = momentum_attention(*(x.to(dtype) for x in (q, k, v)), beta=coefficients[0], gamma=coefficients[1])
        return list(torch.autograd.grad((y * v.to(dtype)).sum(), coefficients))

    for found, exact in zip(gradients(torch.float32), gradients(torch.float64), strict=True):
        torch.testing.assert_close(found, exact, rtol=3e-6, atol=0.0)


@needs_native
@pytest.mark.parametrize("gamma", [1e-25, 1e25])
def test_extreme_gammas_leave_the_range_of_no_power(gamma: float) -> None:
    q, k, v = (torch.randn(1, 2, 70, 8) for _ in range(3))
    found, wanted = (results(q, k, v / gamma, beta=0.3, gamma=gamma, backend=form) for form in ("native", "chunked"))
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a / b.abs().max(), b / b.abs().max(), rtol=1e-5, atol=1e-5)


@pytest.mark.kernels
@needs_native
@pytest.mark.parametrize("part", ["m", "s", "z"])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_a_loss_on_one_part_of_the_state_reaches_the_inputs(dtype: torch.dtype, part: str) -> None:
    leaves = [torch.randn(1, 2, 40, 8).to(dtype).requires_grad_() for _ in range(3)]
    found = []
    for backend in ("native", "chunked"):
        _, state = momentum_attention(*leaves, beta=0.6, return_state=True, backend=backend)
        loss = getattr(state, part).square().sum()
        found.append([x for x in torch.autograd.grad(loss, leaves, allow_unused=True) if x is not None and x.any()])
    assert len(found[0]) == len(found[1]) > 0
    assert_same(found[0], found[1], dtype)


@pytest.mark.kernels
@needs_native
def test_masks_of_any_layout_mean_the_same() -> None:
    q, k, v = (torch.randn(3, 2, 40, 8, dtype=torch.float64) for _ in range(3))
    mask = (torch.rand(40, 3) > 0.3).T
    mask[1] = False
    assert not mask.is_contiguous()
    found = results(q, k, v, beta=0.6, key_mask=mask)
    assert_same(found, results(q, k, v, beta=0.6, key_mask=mask.contiguous(), backend="chunked"), torch.float64)


@needs_native
@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.float32], ids=str)
def test_a_feature_map_of_another_dtype_changes_nothing_but_rounding(dtype: torch.dtype) -> None:
    q, k, v = (torch.randn(1, 2, 30, 8) for _ in range(3))
    options: dict[str, Any] = {"beta": 0.5, "feature_map": lambda x: torch.relu(x.to(dtype)) + 0.1}
    found = momentum_attention(q, k, v, backend="native", **options)
    wanted = momentum_attention(q, k, v, beta=0.5, feature_map=lambda x: torch.relu(x) + 0.1, backend="chunked")
    assert torch.allclose(found, wanted, atol=5e-3)


@needs_native
def test_tables_made_elsewhere_do_not_stay() -> None:
    q, k, v = (torch.randn(1, 2, 30, 8) for _ in range(3))
    with torch.device("meta"):
        first = momentum_attention(q, k, v, beta=0.123)
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):
        momentum_attention(q, k, v, beta=0.321)
    for beta, known in ((0.123, first), (0.321, None)):
        y = momentum_attention(q, k, v, beta=beta)
        assert torch.allclose(y, momentum_attention(q, k, v, beta=beta, backend="chunked"), atol=1e-5)
        assert known is None or torch.equal(y, known)


@needs_native
def test_transforms_of_torch_func_take_the_form_that_knows_them() -> None:
    x = torch.randn(1, 1, 20, 4, dtype=torch.float64)
    found = torch.func.grad(lambda x: momentum_attention(x, x, x, beta=0.4).sum())(x)
    leaf = x.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(momentum_attention(leaf, leaf, leaf, beta=0.4).sum(), leaf)
    assert torch.allclose(found, wanted)


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.kernels
@needs_native
@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("beta", [None, 0.6, 0.95])
@pytest.mark.parametrize("segments", [3, 5])
@pytest.mark.parametrize("heads", [1, 3])
def test_the_number_of_threads_does_not_change_a_bit(heads: int, segments: int, beta: float | None) -> None:
    q, k, v = (torch.randn(1, heads, segments * SEGMENT + 5, 24) for _ in range(3))
    found = []
    for count in (1, 2, 5):  # one head and several segments: threads share a sequence
        torch.set_num_threads(count)
        found.append(results(q, k, v, beta=beta, backend="native", return_state=True))
    assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True))


@needs_native
def test_every_instruction_set_gives_the_same(instruction_set: str) -> None:
    found = native()
    assert not isinstance(found, Missing)
    assert found.variant == instruction_set == os.environ["MOMENTUM_ISA"]
    q, k, v = (torch.randn(2, 2, 90, 20, dtype=torch.float64) for _ in range(3))
    for beta in (None, 0.6, 0.95):
        wanted = results(q, k, v, beta=beta, backend="chunked")
        assert_same(results(q, k, v, beta=beta, backend="native"), wanted, torch.float64)
        narrow = [x.bfloat16() for x in (q, k, v)]
        wanted = results(*narrow, beta=beta, backend="chunked")
        assert_same(results(*narrow, beta=beta, backend="native"), wanted, torch.bfloat16)
    for width, dtype in ((48, torch.float32), (24, torch.float64)):  # large enough for non-temporal stores
        apart = [torch.randn(2, 4, 300, width, dtype=dtype) for _ in range(3)]
        beside = [torch.randn(2, 300, 4, width, dtype=dtype).transpose(1, 2) for _ in range(3)]
        for large in (apart, beside):
            wanted = results(*large, beta=0.6, backend="chunked")
            assert_same(results(*large, beta=0.6, backend="native"), wanted, dtype)


@pytest.mark.kernels
@needs_native
@pytest.mark.parametrize("beta", [None, 0.6])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_one_token_at_a_time_gives_the_same_as_all_at_once(beta: float | None, dtype: torch.dtype) -> None:
    q, k, v = (torch.randn(2, 3, 20, 19).to(dtype) for _ in range(3))
    attend = linear_attention if beta is None else momentum_attention
    options: dict[str, Any] = {"return_state": True} | ({} if beta is None else {"beta": beta})
    whole, end = attend(q, k, v, **options)
    state, steps = None, []
    for i in range(20):
        y, state = attend(*(x[:, :, i : i + 1] for x in (q, k, v)), state=state, backend="native", **options)
        steps.append(y)
    assert state is not None
    assert_same([torch.cat(steps, 2), *state], [whole, *end], dtype)


@pytest.mark.kernels
@needs_native
def test_a_step_leaves_the_state_it_was_given_alone() -> None:
    q, k, v = (torch.randn(1, 2, 1, 8) for _ in range(3))
    _, state = momentum_attention(q, k, v, beta=0.5, return_state=True)
    before = [x.clone() for x in state]
    momentum_attention(q, k, v, beta=0.5, state=state, return_state=True, backend="native")
    assert all(torch.equal(a, b) for a, b in zip(state, before, strict=True))


@needs_native
@pytest.mark.parametrize("momentum", [False, True])
def test_the_operators_keep_the_rules_of_pytorch(momentum: bool) -> None:
    q, k, v = (torch.randn(1, 2, 40, 8, dtype=torch.float64, requires_grad=True) for _ in range(3))
    state = (torch.randn(1, 2, 2, 8, 8, dtype=torch.float64), torch.rand(1, 2, 8, dtype=torch.float64))
    s, z = state if momentum else (None, None)
    coefficients = [torch.tensor([x]).double().requires_grad_() for x in (0.3, 1.0)] if momentum else [None, None]
    arguments = (q, k, v, s, z, *coefficients, None, None, True, True, 1e-6, momentum)
    torch.library.opcheck(torch.ops.momentum.causal.default, arguments)
    long = [torch.randn(2, 300, 2, 8).bfloat16().transpose(1, 2).requires_grad_() for _ in range(3)]
    rows, count = torch.arange(300, dtype=torch.int32).repeat(2, 1), torch.tensor([300, 77], dtype=torch.int32)
    masked = (*long, None, None, *coefficients, rows, count, True, True, 1e-6, False)
    torch.library.opcheck(torch.ops.momentum.causal.default, masked, test_utils=("test_schema", "test_faketensor"))
    m, s, z = (torch.randn(1, 2, 8, 8), torch.randn(1, 2, 8, 8), torch.rand(1, 2, 8))
    one = [torch.randn(1, 2, 1, 8) for _ in range(3)]
    constant, token = torch.tensor([0.3]).double(), torch.rand(1, 2, 1)
    paper = (*one, None, m, s, z, None, constant, None, None, None, None, 1, True, 1e-6)
    torch.library.opcheck(torch.ops.momentum.step.default, paper)
    gated_delta = (*one, None, None, s, None, token, None, None, token, token, None, 2, False, 1e-6)
    torch.library.opcheck(torch.ops.momentum.step.default, gated_delta)


@needs_native
@pytest.mark.parametrize(
    ("beta", "gamma", "message"),
    [
        ([0.3, 0.6], [1.0], "come together, of one shape"),
        ([0.3], None, "come together, of one shape"),
        ([0.3, 0.6, 0.9], [1.0, 1.0, 1.0], "one or one a head"),
    ],
)
def test_the_operators_refuse_coefficients_they_would_read_beyond(
    beta: list[float], gamma: list[float] | None, message: str
) -> None:
    q = torch.randn(1, 2, 10, 8)
    coefficients = [None if x is None else torch.tensor(x, dtype=torch.float64) for x in (beta, gamma)]
    with pytest.raises(ValueError, match=message):
        torch.ops.momentum.causal(q, q, q, None, None, *coefficients, None, None, True, True, 1e-6, False)


@needs_native
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"q": torch.randn(1, 2, 2, 8)}, r"q must be float32 or float64 \(b, h, 1, d\)"),
        ({"q": torch.randn(1, 2, 1, 8).half()}, "q must be float32 or float64"),
        ({"k": torch.randn(1, 2, 1, 7)}, "q, k, v do not fit"),
        ({"v": torch.randn(1, 3, 1, 6)}, "q, k, v do not fit"),
        ({"v": torch.randn(1, 2, 1, 6).double()}, r"v must be torch\.float32 like q"),
        ({"erase": torch.randn(1, 1, 1, 8)}, "erase must be"),
        ({"m": torch.randn(1, 2, 8, 5)}, "m must be contiguous"),
        ({"s": torch.randn(1, 2, 8, 5)}, "s must be contiguous"),
        ({"s": torch.randn(1, 2, 8, 6).double()}, "s must be contiguous"),
        ({"z": torch.randn(1, 2, 6)}, "z must be contiguous"),
        ({"z": None}, "normalize needs z"),
        ({"m": None}, "m and beta come together"),
        ({"beta": None}, "m and beta come together"),
        ({"beta": torch.rand(3).double()}, "one or one a head"),
        ({"gamma": torch.rand(2).double()}, "one or one a head like the others"),
        ({"gamma": torch.rand(1)}, "gamma must be float64"),
        ({"alpha": torch.rand(1, 2, 1, 6)}, "alpha does not fit"),
        ({"eta": torch.rand(1, 2, 1, 8)}, "eta does not fit"),
        ({"delta": torch.rand(2, 2, 1)}, "delta does not fit"),
        ({"lookahead": torch.rand(1, 2, 1).double()}, "lookahead does not fit"),
        ({"features": 3}, r"features must be in 0 … 2, not 3"),
    ],
    ids=lambda x: x if isinstance(x, str) else "-".join(x),
)
def test_a_step_refuses_what_it_would_read_beyond(changes: dict[str, Any], message: str) -> None:
    q, k, v = torch.randn(1, 2, 1, 8), torch.randn(1, 2, 1, 8), torch.randn(1, 2, 1, 6)
    given: dict[str, Any] = {"q": q, "k": k, "v": v, "erase": None, "m": torch.zeros(1, 2, 8, 6)}
    given |= {"s": torch.zeros(1, 2, 8, 6), "z": torch.zeros(1, 2, 8), "alpha": None, "beta": torch.rand(1).double()}
    given |= {"gamma": None, "eta": None, "delta": None, "lookahead": None, "features": 0, "normalize": True}
    torch.ops.momentum.step(**given, eps=1e-6)
    with pytest.raises(ValueError, match=message):
        torch.ops.momentum.step(**(given | changes), eps=1e-6)


class Seen(TorchDispatchMode):
    """The operators of this package that were called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "momentum":
            self.names.append(func.name())
        return func(*args, **(kwargs or {}))


@pytest.mark.kernels
@needs_native
@pytest.mark.parametrize("options", [{}, {"beta": 0.6}, {"beta": 0.6, "return_state": True}], ids=str)
def test_the_short_cut_gives_what_the_operators_give_to_whoever_watches(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    q, k, v = (torch.randn(2, 2, 70, 8) for _ in range(3))
    with monkeypatch.context() as without_operators:
        without_operators.setattr(torch.ops.momentum, "causal", None)
        without_operators.setattr(torch.ops.momentum, "causal_backward", None)
        unseen = results(q, k, v, **options)
    with Seen() as seen:
        watched = results(q, k, v, **options)
    assert seen.names == ["momentum::causal", "momentum::causal_backward"]
    assert all(torch.equal(a, b) for a, b in zip(unseen, watched, strict=True))


@needs_native
def test_several_gradients_at_once_take_the_long_way() -> None:
    q, k, v = (torch.randn(1, 2, 20, 8, dtype=torch.float64) for _ in range(3))
    leaf = q.clone().requires_grad_()
    y = linear_attention(leaf, k, v)
    many = torch.randn(3, *y.shape, dtype=torch.float64)
    (found,) = torch.autograd.grad(y, leaf, many, is_grads_batched=True, retain_graph=True)
    wanted = [torch.autograd.grad(y, leaf, one, retain_graph=True)[0] for one in many]
    torch.testing.assert_close(found, torch.stack(wanted))


@needs_native
@pytest.mark.parametrize("case", ["one tensor", "one made from another"])
def test_second_derivatives_tell_arguments_apart(case: str) -> None:
    x = torch.randn(1, 2, 9, 4, dtype=torch.float64, requires_grad=True)

    def twice(backend: Any) -> tuple[Tensor, Tensor]:
        k = x.cos()
        q, k, v = (x, x, x) if case == "one tensor" else (k * 2, k, x)
        y = momentum_attention(q, k, v, beta=0.6, backend=backend)
        (first,) = torch.autograd.grad(y.sin().sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), x)
        return first, second

    for found, wanted in zip(twice("native"), twice("chunked"), strict=True):
        torch.testing.assert_close(found, wanted)


@needs_native
def test_a_sign_that_is_still_to_be_turned_is_turned() -> None:
    q, k = (torch.randn(1, 1, 8, 1) for _ in range(2))
    v = torch.randn(1, 1, 8, 1, dtype=torch.cfloat).conj().imag
    assert v.is_neg()
    torch.testing.assert_close(linear_attention(q, k, v), linear_attention(q, k, v.clone()))


def test_without_the_library_native_says_how_to_get_it_and_auto_does_without(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = (torch.randn(1, 2, 20, 8) for _ in range(3))
    monkeypatch.setenv("MOMENTUM_NATIVE", "/nowhere/_native.so")
    native.cache_clear()
    try:
        with pytest.raises(ValueError, match=r"native.*cannot be used: not compiled: run `python -m"):
            momentum_attention(q, k, v, beta=0.5, backend="native")
        expected = momentum_attention(q, k, v, beta=0.5, backend="chunked")
        assert torch.equal(momentum_attention(q, k, v, beta=0.5), expected)
        first = backends()[0]
        assert (first.name, first.available) == ("native", False)
        assert "cpu.build" in first.reason
    finally:
        native.cache_clear()


def test_a_file_that_is_no_library_is_said_to_be_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken.so").write_bytes(b"not a library")
    monkeypatch.setenv("MOMENTUM_NATIVE", str(tmp_path / "broken.so"))
    native.cache_clear()
    try:
        found = native()
        assert isinstance(found, Missing)
        assert "damaged" in found.reason
    finally:
        native.cache_clear()


def test_no_compiler_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match="no C\\+\\+ compiler found"):
        build(tmp_path)
    assert not list(tmp_path.iterdir())


@needs_native
@pytest.mark.slow
def test_sanitizers_find_nothing(tmp_path: Path, instruction_set: str) -> None:
    """The fuzz again, on a library that watches every address and every undefined operation."""
    try:
        command = compiler()
    except BuildError as error:
        pytest.skip(str(error))
    flags = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-g")
    library = build(tmp_path, extra=flags, only=instruction_set)
    runtimes = [
        subprocess.run([*command, f"-print-file-name=lib{name}.so"], capture_output=True, text=True).stdout.strip()
        for name in ("asan", "ubsan")
    ]
    watched = {
        **os.environ,
        "LD_PRELOAD": ":".join(runtimes),
        "ASAN_OPTIONS": "detect_leaks=0",
        "MOMENTUM_NATIVE": str(library),
        "MOMENTUM_ISA": instruction_set,
        "MOMENTUM_FUZZ": "60",
        "MOMENTUM_CHECK_SHAPES": "0",
        "MOMENTUM_WHOLE_GRID": "1",
    }
    tests = [*(str(ROOT / name) for name in ("backend", "decoding")), "-m", "kernels and not slow", "-p", "no:xdist"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-qs", "-p", "no:cacheprovider", *tests],
        env=watched,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[:3000]
    assert " passed" in run.stdout
