"""Gates opened together, and mixers whose convolution, norm and gate are native or not, give the same."""

import pytest
import torch
from torch import Tensor, nn

from momentum_transformer import Encoder, GatedMomentumAttention, MomentumDeltaAttention, ShortConvolution
from momentum_transformer.backend import surroundings
from momentum_transformer.layers import Tail
from momentum_transformer.layers.gates import Decay, Gate, Share, StepSize, Strength, open_gates
from momentum_transformer.layers.situation import Mixer
from tests.ops.cases import assert_all_close

WIDTH, HEADS = 12, 3


def gates() -> list[Gate]:
    torch.manual_seed(0)
    made: list[Gate] = [
        Decay(WIDTH, HEADS, steps=(0.01, 0.1)),
        Share(WIDTH, HEADS, start=0.3),
        StepSize(WIDTH, HEADS, start=0.7),
        Strength(WIDTH, HEADS, most=2.0),
    ]
    for gate in made:
        nn.init.normal_(gate.project.weight)
    return [gate.double() for gate in made]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_gates_together_are_the_gates_one_by_one(count: int) -> None:
    chosen, x = gates()[:count], torch.randn(2, 7, WIDTH, dtype=torch.float64, requires_grad=True)
    leaves = [x, *(p for gate in chosen for p in gate.parameters())]
    together, apart = open_gates(chosen, x), [gate(x) for gate in chosen]
    assert all(y.shape == (2, HEADS, 7) and y.is_contiguous() for y in together)
    found, wanted = (torch.autograd.grad(sum(y.square().sum() for y in ys), leaves) for ys in (together, apart))
    names = [str(i) for i in range(count + len(leaves))]
    assert_all_close([*together, *found], [*apart, *wanted], names, 1e-12)


def test_a_projection_that_somebody_replaced_is_called() -> None:
    class Doubled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    chosen, x = gates(), torch.randn(2, 7, WIDTH, dtype=torch.float64)
    chosen[1].project = Doubled(WIDTH, HEADS).double()
    assert_all_close(open_gates(chosen, x), [gate(x) for gate in chosen], list("abcd"), 1e-14)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(
    "mixer",
    [
        MomentumDeltaAttention(),
        MomentumDeltaAttention(convolution=ShortConvolution(3, "none"), tail=Tail(gate="none")),
        MomentumDeltaAttention(tail=Tail(norm=False, gate="full")),
        GatedMomentumAttention(convolution=ShortConvolution(7), tail=Tail()),
    ],
)
def test_native_parts_change_no_digit(mixer: Mixer, causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = Encoder(1, 24, 2, attention=mixer, causal=causal).double()
    x, mask = torch.randn(2, 19, 24, dtype=torch.float64), torch.rand(2, 19) > 0.2
    reset = torch.rand(2, 19) > 0.8
    names, parameters = [name for name, _ in model.named_parameters()], list(model.parameters())

    def run() -> list[Tensor]:
        y = model(x, key_mask=mask, reset=reset)
        return [y, *torch.autograd.grad(y.square().sum(), parameters)]

    given = run()
    monkeypatch.setattr(surroundings, "refusal", lambda *tensors: "PyTorch's turn")
    assert_all_close(given, run(), ["y", *names], 1e-10)


@pytest.mark.parametrize("native", [True, False])
def test_a_convolution_keeps_the_dtype_of_its_input_under_autocast(
    native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not native:
        monkeypatch.setattr(surroundings, "refusal", lambda *tensors: "PyTorch's turn")
    x, weight = torch.randn(2, 9, 8, dtype=torch.bfloat16), torch.randn(8, 4, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, after = surroundings.short_convolution(x, weight, silu=True)
    assert y.dtype == after.dtype == torch.bfloat16
    (d_weight,) = torch.autograd.grad(y.float().sum(), weight)
    assert d_weight.dtype == torch.float32
