"""Convolution, norm and gate in native code: numbers and gradients of a literal loop and of the forms in PyTorch."""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap

from momentum_transformer.backend import surroundings
from momentum_transformer.backend.cpu.row_norm_operator import native_map
from momentum_transformer.ops import convolution as in_pytorch
from momentum_transformer.ops.feature_maps import l2_normalized
from momentum_transformer.ops.row_norm import GATINGS, row_norm
from tests.family import NARROW, TOLERANCE, needs_native

pytestmark = needs_native
SHAPES = [(1, 1, 1), (2, 5, 3), (3, 37, 16), (2, 64, 33), (1, 19, 130)]
BOUNDS = {dtype: TOLERANCE[dtype] for dtype in (torch.float64, torch.float32)}
Function = Callable[..., tuple[Tensor, ...]]
unit_rows: Any = native_map(l2_normalized)


def assert_close(given: Sequence[Tensor], wanted: Sequence[Tensor], bound: float) -> None:
    """Relative to the largest number of each tensor."""
    for i, (a, b) in enumerate(zip(given, wanted, strict=True)):
        assert (a.shape, a.dtype) == (b.shape, b.dtype), i
        error = (a.double() - b.double()).abs().max().item() if b.numel() else 0.0
        size = 1 + (b.double().abs().max().item() if b.numel() else 0.0)
        assert error <= bound * size, f"{i}: {error / size:.1e}"


def outputs_and_gradients(function: Function, inputs: Sequence[Tensor | None]) -> list[Tensor]:
    """Of every output weighed with random numbers, after every input that needs a gradient."""
    leaves = [x for x in inputs if x is not None and x.requires_grad]
    outputs = function(*inputs)
    noise = torch.Generator().manual_seed(1)
    weights = [torch.randn(y.shape, generator=noise, dtype=torch.float64).to(y.dtype) for y in outputs]
    return [*outputs, *torch.autograd.grad(outputs, leaves, weights)]


def literal(
    x: Tensor, weight: Tensor, past: Tensor, bias: Tensor, mask: Tensor | None, reset: Tensor | None, *, silu: bool
) -> tuple[Tensor, Tensor]:
    """Token by token, with a list of the tokens before."""
    (b, n, _), taps = x.shape, weight.shape[1]
    lines, ends = [], []
    for i in range(b):
        before, line = list(past[i].unbind(0)), []
        for t in range(n):
            if reset is not None and reset[i, t]:
                before = [torch.zeros_like(token) for token in before]
            if mask is not None and not mask[i, t]:
                line.append(torch.zeros_like(x[i, t]))
                continue
            window = [*before, x[i, t]]
            y = sum((weight[:, r] * window[r] for r in range(taps)), bias)
            line.append(y * torch.sigmoid(y) if silu else y)
            before = window[1:]
        lines.append(torch.stack(line))
        ends.append(torch.stack(before))
    return torch.stack(lines), torch.stack(ends)


def random(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    noise = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=noise, dtype=torch.float64).to(dtype).requires_grad_()


def masks(b: int, n: int, which: str) -> tuple[Tensor | None, Tensor | None]:
    noise = torch.Generator().manual_seed(n)
    mask = torch.rand(b, n, generator=noise) > 0.3
    mask[-1] = mask[-1] & (b == 1)  # the last sequence has no token at all
    reset = torch.rand(b, n, generator=noise) > 0.8
    return mask if "mask" in which else None, reset if "reset" in which else None


@cache
def by_the_literal_loop(
    shape: tuple[int, int, int], taps: int, silu: bool, which: str
) -> tuple[list[Tensor], list[Tensor]]:
    """Inputs, and what the loop makes of them; in float64."""
    b, n, c = shape
    mask, reset = masks(b, n, which)
    inputs = [random(b, n, c), random(c, taps), random(b, taps - 1, c, seed=5), random(c, seed=7)]

    def loop(x: Tensor, weight: Tensor, past: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
        return literal(x, weight, past, bias, mask, reset, silu=silu)

    return inputs, outputs_and_gradients(loop, inputs)


@pytest.mark.grid
@pytest.mark.kernels
@pytest.mark.parametrize("which", ["plain", "mask", "reset", "mask and reset"])
@pytest.mark.parametrize("silu", [False, True])
@pytest.mark.parametrize("taps", range(2, 9))
def test_convolution_is_the_literal_loop(taps: int, silu: bool, which: str, instruction_set: str) -> None:
    for b, n, c in SHAPES:
        mask, reset = masks(b, n, which)
        exact, wanted = by_the_literal_loop((b, n, c), taps, silu, which)
        for dtype, bound in BOUNDS.items():
            inputs = [x.detach().to(dtype).requires_grad_() for x in exact]

            def native_form(*a: Tensor, m: Tensor | None = mask, r: Tensor | None = reset) -> tuple[Tensor, ...]:
                return surroundings.short_convolution(*a[:3], bias=a[3], mask=m, reset=r, silu=silu)

            assert_close(outputs_and_gradients(native_form, inputs), [x.to(dtype) for x in wanted], bound)


@pytest.mark.kernels
@pytest.mark.parametrize("turned", [None, 0, 3, 24])
@pytest.mark.parametrize("which", ["plain", "mask and reset"])
@pytest.mark.parametrize("past", [True, False])
@pytest.mark.parametrize("with_bias", [True, False])
def test_convolution_and_forms_in_pytorch_are_one(turned: int | None, which: str, past: bool, with_bias: bool) -> None:
    if past and turned is not None:
        return
    b, n, c, taps = 3, 41, 24, 4
    mask, reset = masks(b, n, which)
    inputs = [random(b, n, c), random(c, taps), random(b, taps - 1, c) if past else None]
    inputs.append(random(c) if with_bias else None)

    def form(module: Any) -> Function:
        def convolve(x: Tensor, weight: Tensor, past: Tensor | None, bias: Tensor | None) -> tuple[Tensor, ...]:
            if turned is None:
                found: tuple[Tensor, Tensor] = module.short_convolution(
                    x, weight, past, bias=bias, mask=mask, reset=reset, silu=True
                )
                return found
            return (module.two_way_convolution(x, weight, bias, turned=turned, mask=mask, reset=reset, silu=True),)

        return convolve

    wanted = outputs_and_gradients(form(in_pytorch), inputs)
    assert_close(outputs_and_gradients(form(surroundings), inputs), wanted, 1e-12)


@pytest.mark.kernels
def test_a_sequence_in_two_halves_is_the_whole() -> None:
    x, weight = random(2, 30, 20), random(20, 5)
    mask, reset = masks(2, 30, "mask and reset")
    assert mask is not None
    assert reset is not None
    whole, end = surroundings.short_convolution(x, weight, mask=mask, reset=reset, silu=True)
    for split in (1, 2, 13, 29):
        y, past = surroundings.short_convolution(
            x[:, :split], weight, mask=mask[:, :split], reset=reset[:, :split], silu=True
        )
        z, last = surroundings.short_convolution(
            x[:, split:], weight, past, mask=mask[:, split:], reset=reset[:, split:], silu=True
        )
        assert torch.equal(torch.cat([y, z], 1), whole)
        assert end is not None
        assert last is not None
        assert torch.equal(last, end)


@pytest.mark.kernels
def test_layouts_and_threads_change_no_bit() -> None:
    x, weight, gate = (random(*shape).detach() for shape in ((3, 70, 8 * 20), (160, 4), (3, 70, 160)))
    heads = x.unflatten(2, (8, 20)).transpose(1, 2)
    gates, scale = gate.unflatten(2, (8, 20)).transpose(1, 2), random(20).detach()
    wanted = surroundings.short_convolution(x, weight, silu=True)[0]
    normed = surroundings.norm_and_gate(heads, scale, gates, eps=1e-5)
    assert normed.transpose(1, 2).is_contiguous()  # as the projection out reads it
    padded = torch.zeros(3, 70, 200, dtype=x.dtype)
    padded[..., 7:167] = x
    strided = x.transpose(1, 2).contiguous().transpose(1, 2)
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            for same in (x, padded[..., 7:167], strided):
                assert torch.equal(surroundings.short_convolution(same, weight, silu=True)[0], wanted)
            for a, b in ((heads, gates), (heads.contiguous(), gates), (heads, gates.contiguous())):
                assert torch.equal(surroundings.norm_and_gate(a, scale, b, eps=1e-5), normed)
    finally:
        torch.set_num_threads(before)


@pytest.mark.kernels
def test_threads_change_no_bit_of_gradients() -> None:
    inputs = [random(2, 300, 160, dtype=torch.float32), random(160, 4, dtype=torch.float32)]
    rows = [random(*s, dtype=torch.float32) for s in ((2, 8, 300, 20), (20,), (2, 8, 300, 20))]
    found = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            convolved = outputs_and_gradients(lambda *a: surroundings.short_convolution(*a, silu=True), inputs)
            normed = outputs_and_gradients(lambda *a: (surroundings.norm_and_gate(*a, eps=1e-5),), rows)
            found.append([*convolved, *normed])
    finally:
        torch.set_num_threads(before)
    for others in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], others, strict=True))


@pytest.mark.parametrize("dtype", NARROW)
def test_sixteen_bits_are_rounded_once(dtype: torch.dtype, instruction_set: str) -> None:
    lines = [random(*shape, dtype=dtype) for shape in ((2, 40, 21), (21, 4), (2, 3, 21), (21,))]
    wide = [a.detach().double().requires_grad_() for a in lines]
    given = outputs_and_gradients(lambda *a: surroundings.short_convolution(*a[:3], bias=a[3], silu=True), lines)
    wanted = outputs_and_gradients(lambda *a: in_pytorch.short_convolution(*a[:3], bias=a[3], silu=True), wide)
    unit = torch.finfo(dtype).eps
    assert_close(given, [a.to(dtype) for a in wanted], unit)
    rows = [random(2, 3, 9, 21, dtype=dtype), random(21, dtype=dtype), random(2, 3, 9, 21, dtype=dtype, seed=3)]
    wide = [a.detach().double().requires_grad_() for a in rows]
    given = outputs_and_gradients(lambda *a: (surroundings.norm_and_gate(*a, eps=1e-5),), rows)
    wanted = outputs_and_gradients(lambda *a: (row_norm(*a, mean=True, eps=1e-5),), wide)
    assert_close(given, [a.to(dtype) for a in wanted], unit)


@pytest.mark.grid
@pytest.mark.kernels
@pytest.mark.parametrize("d", [1, 3, 16, 33, 64])
@pytest.mark.parametrize("kind", ["l2", "norm", *GATINGS])
def test_norms_are_the_forms_in_pytorch(d: int, kind: str, instruction_set: str) -> None:
    for dtype, bound in BOUNDS.items():
        for b, h, n in ((1, 1, 1), (2, 3, 70), (1, 2, 129)):
            x, gate = (random(b, n, h, d, seed=seed).detach().transpose(1, 2).requires_grad_() for seed in (0, 9))
            inputs: list[Tensor | None] = [x] if kind == "l2" else [x, random(d), gate if kind in GATINGS else None]
            gating = kind if kind in GATINGS else "sigmoid"
            exact: Function = (
                (lambda a: (l2_normalized(a),)) if kind == "l2" else partial(literal_norm_and_gate, gating)
            )
            wanted = outputs_and_gradients(exact, inputs)
            inputs = [None if a is None else a.detach().to(dtype).requires_grad_() for a in inputs]

            def native_form(*a: Tensor) -> tuple[Tensor, ...]:
                if len(a) == 1:
                    return (unit_rows(a[0]),)
                return (surroundings.norm_and_gate(*a, eps=1e-5, gating=gating),)  # noqa: B023 (called in this turn)

            assert_close(outputs_and_gradients(native_form, inputs), [a.to(dtype) for a in wanted], bound)


def literal_norm_and_gate(gating: str, x: Tensor, weight: Tensor, gate: Tensor | None) -> tuple[Tensor]:
    opened = torch.ones_like(x) if gate is None else torch.sigmoid(gate) * (1 if gating == "sigmoid" else gate)
    first = gating == "silu first"
    y = torch.nn.functional.rms_norm(x * opened if first else x, (x.shape[-1],), weight, 1e-5)
    return (y if first else y * opened,)


def test_nan_and_infinity_stay_where_they_are() -> None:
    x = random(1, 20, 16, dtype=torch.float32).detach()
    weight = random(16, 3, dtype=torch.float32).detach()
    for value in (float("nan"), float("inf")):
        x[0, 7, 4] = value
        wanted, _ = in_pytorch.short_convolution(x, weight, silu=True)
        given, _ = surroundings.short_convolution(x, weight, silu=True)
        assert torch.equal(given.isnan(), wanted.isnan())
        assert given[0, :, 4].isfinite().sum() == 17
    mask = torch.ones(1, 20, dtype=torch.bool)
    mask[0, 7] = False
    assert surroundings.short_convolution(x, weight, mask=mask)[0].isfinite().all()


def test_large_gates_open_and_shut() -> None:
    gate = torch.tensor([-1e4, -100.0, -90.0, 0.0, 90.0, 1e4])[:, None].expand(6, 2)[None, None].contiguous()
    x = torch.ones(1, 1, 6, 2)
    given = surroundings.norm_and_gate(x, torch.ones(2), gate, eps=0.0)
    assert_close([given], [torch.sigmoid(gate)], 1e-6)


def test_gradients_can_be_differentiated_again_and_mapped() -> None:
    x, weight, past, bias = random(2, 7, 3), random(3, 3), random(2, 2, 3), random(3)
    mask, reset = masks(2, 7, "mask and reset")

    def convolve(*a: Tensor) -> tuple[Tensor, ...]:
        return surroundings.short_convolution(*a[:3], bias=a[3], mask=mask, reset=reset, silu=True)

    def norm(*a: Tensor, gating: str = "sigmoid") -> Tensor:
        return surroundings.norm_and_gate(*a, eps=1e-5, gating=gating)

    rows = [random(1, 2, 3, 4), random(4), random(1, 2, 3, 4, seed=4)]
    assert torch.autograd.gradcheck(convolve, (x, weight, past, bias))
    assert torch.autograd.gradgradcheck(convolve, (x, weight, past, bias))
    for gating in GATINGS:
        assert torch.autograd.gradcheck(partial(norm, gating=gating), rows)
        assert torch.autograd.gradgradcheck(partial(norm, gating=gating), rows)
    wanted = torch.autograd.grad(convolve(x, weight, past, bias)[0].square().sum(), x)[0]
    plain = (x.detach(), weight.detach(), past.detach(), bias.detach())
    assert_close([grad(lambda *a: convolve(*a)[0].square().sum())(*plain)], [wanted], 1e-12)
    each = vmap(lambda *a: norm(*a))(*(a.detach()[None] for a in rows))
    assert_close([each[0]], [norm(*rows).detach()], 1e-12)


def test_operators_called_directly_raise_for_what_does_not_fit() -> None:
    x, weight = torch.randn(2, 5, 6), torch.randn(6, 3)
    wrong = [
        ((x[0], weight, None, None, None, None, True, 6), "x must be"),
        ((x.int(), weight, None, None, None, None, True, 6), "x must be"),
        ((x, weight[:5], None, None, None, None, True, 6), "weight must be"),
        ((x, torch.randn(6, 9), None, None, None, None, True, 6), "weight must be"),
        ((x, torch.randn(6, 1), None, None, None, None, True, 6), "weight must be"),
        ((x, weight.double(), None, None, None, None, True, 6), "weight must be"),
        ((x, weight, torch.randn(2, 3, 6), None, None, None, True, 6), "past must be"),
        ((x, weight, torch.randn(2, 2, 6).double(), None, None, None, True, 6), "past must be"),
        ((x, weight, None, torch.randn(5), None, None, True, 6), "bias must be"),
        ((x, weight, None, torch.randn(6).double(), None, None, True, 6), "bias must be"),
        ((x, weight, None, None, torch.ones(2, 4).bool(), None, True, 6), "mask must be"),
        ((x, weight, None, None, None, torch.ones(2, 5), True, 6), "reset must be"),
        ((x, weight, None, None, None, None, True, 7), "turned must be"),
        ((x, weight, None, None, None, None, True, -1), "turned must be"),
        ((x, weight, torch.randn(2, 2, 6), None, None, None, True, 3), "have no past"),
    ]
    for arguments, message in wrong:
        with pytest.raises(ValueError, match=message):
            torch.ops.momentum.short_convolution(*arguments)
        with pytest.raises(ValueError, match=message):
            torch.ops.momentum.short_convolution_backward(x, None, *arguments)
    for dy, d_after in ((x[:, 1:], None), (x.double(), None), (x, torch.randn(2, 3, 6))):
        with pytest.raises(ValueError, match=r"dy must be|d_after must be"):
            torch.ops.momentum.short_convolution_backward(dy, d_after, x, weight, None, None, None, None, True, 6)
    rows = torch.randn(2, 3, 4, 5)
    for bad, message in (
        ((rows[0], None, None, True, 0.0), "x must be"),
        ((rows, torch.randn(4), None, True, 0.0), "weight must be"),
        ((rows, torch.randn(5).double(), None, True, 0.0), "weight must be"),
        ((rows, None, rows[:1], True, 0.0), "gate must be"),
        ((rows, None, rows.half(), True, 0.0), "gate must be"),
        ((rows, None, rows, True, 0.0, 3), "gating must be"),
    ):
        with pytest.raises(ValueError, match=message):
            torch.ops.momentum.row_norm(*bad)
        with pytest.raises(ValueError, match=message):
            torch.ops.momentum.row_norm_backward(rows, *bad)
    with pytest.raises(ValueError, match="dy must be"):
        torch.ops.momentum.row_norm_backward(rows[..., :4], rows, None, None, True, 0.0)


def test_operators_pass_the_checks_of_pytorch() -> None:
    x, weight, past, bias = (a.detach() for a in (random(2, 7, 3), random(3, 3), random(2, 2, 3), random(3)))
    mask, reset = masks(2, 7, "mask and reset")
    cases = [(x, weight, past, bias, mask, reset, True, 3), (x, weight, None, None, None, None, False, 1)]
    for case in cases:
        grown = tuple(a.clone().requires_grad_() if i < 4 and isinstance(a, Tensor) else a for i, a in enumerate(case))
        torch.library.opcheck(torch.ops.momentum.short_convolution.default, grown)
    rows = random(2, 3, 4, 5)
    for norm in ((rows, random(5), random(2, 3, 4, 5, seed=2), True, 1e-5), (rows, None, None, False, 1e-6)):
        torch.library.opcheck(torch.ops.momentum.row_norm.default, norm)


def test_what_native_code_refuses_is_served_by_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight = torch.randn(1, 6, 4), torch.randn(4, 3)
    assert surroundings.refusal(x, weight) is None
    assert surroundings.refusal(x.to("meta"), weight) is not None
    assert surroundings.refusal(x[:, :0]) is not None
    assert surroundings.refusal(x.int()) is not None
    y, after = surroundings.short_convolution(x[:, :0], weight, torch.ones(1, 2, 4))
    assert y.shape == (1, 0, 4)
    assert after is not None
    assert torch.equal(after, torch.ones(1, 2, 4))
    wanted = surroundings.short_convolution(x, weight, silu=True)
    monkeypatch.setattr(surroundings, "status", lambda: "not there")
    assert_close(surroundings.short_convolution(x, weight, silu=True), wanted, 1e-6)
