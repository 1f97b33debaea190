"""Performer against its formula, one pair at a time, against softmax attention, and against another implementation."""

import math
import warnings
from itertools import pairwise

import pytest
import torch

from momentum_transformer import Encoder, PerformerAttention, softmax_attention
from momentum_transformer.layers.performer import Performer
from momentum_transformer.layers.situation import Situation
from momentum_transformer.ops.random_features import orthogonal_gaussian


def tensors(n: int = 13, m: int | None = None, d: int = 6, seed: int = 0) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    sizes = ((2, 3, n, d), (2, 3, m or n, d), (2, 3, m or n, 5))
    return tuple(torch.randn(size, generator=generator, dtype=torch.float64) for size in sizes)


def performer(features: int = 16, redraw: int = 1000, seed: int = 0) -> Performer:
    torch.manual_seed(seed)
    built = PerformerAttention(features=features, redraw=redraw).build(16, 3)
    assert isinstance(built, Performer)
    return built


def literal(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, directions: torch.Tensor, causal: bool, mask: torch.Tensor
) -> torch.Tensor:
    """The estimate of exp(q·k/√d) of each pair, and their weighted mean."""
    d = q.shape[-1]

    def phi(x: torch.Tensor) -> torch.Tensor:
        return torch.exp(directions @ x / d**0.25 - x @ x / (2 * math.sqrt(d)))

    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            for i in range(q.shape[2]):
                seen = [j for j in range(k.shape[2]) if mask[b, j] and (j <= i or not causal)]
                weights = torch.stack([phi(q[b, h, i]) @ phi(k[b, h, j]) for j in seen]) if seen else torch.zeros(0)
                if seen and (q.shape[2] != k.shape[2] or mask[b, i]):
                    y[b, h, i] = (weights[:, None] * v[b, h, seen]).sum(0) / weights.sum()
    return y


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_performer_is_its_formula(causal: bool, masked: bool) -> None:
    q, k, v = tensors()
    mask = torch.rand(2, 13, generator=torch.Generator().manual_seed(1)) > 0.4 if masked else torch.ones(2, 13) > 0
    layer = performer()
    y, _ = layer(q, k, v, Situation(causal, mask if masked else None))
    assert torch.allclose(y, literal(q, k, v, layer.directions(6), causal, mask), atol=1e-9)


def test_performer_attends_across_sequences() -> None:
    q, k, v = tensors(n=5, m=9)
    layer = performer()
    y, _ = layer(q, k, v, Situation(causal=False))
    assert torch.allclose(y, literal(q, k, v, layer.directions(6), False, torch.ones(2, 9) > 0), atol=1e-9)


@pytest.mark.parametrize("causal", [False, True])
def test_many_features_approach_softmax(causal: bool) -> None:
    q, k, v = tensors(d=4)
    q, k = q / 2, k / 2  # the estimate of large products has a heavy tail
    exact = softmax_attention(q, k, v, causal=causal)
    errors = []
    for features in (64, 4096):
        estimates = [performer(features, seed=seed)(q, k, v, Situation(causal))[0] for seed in range(8)]
        errors.append(torch.stack([(y - exact).square().mean() for y in estimates]).mean().sqrt().item())
    assert errors[0] > 4 * errors[1]
    assert errors[1] < 0.05


def test_directions_are_orthogonal_uniform_and_as_long_as_gaussian_ones() -> None:
    many = torch.stack([orthogonal_gaussian(10, 6, seed=seed) for seed in range(4000)])
    for block in (many[:, :6], many[:, 6:]):
        products = block @ block.transpose(-1, -2)
        off = products - torch.diag_embed(products.diagonal(dim1=-2, dim2=-1))
        assert off.abs().max() < 1e-12
    assert (many[:, 0] * many[:, 6]).sum(-1).abs().max() > 0.1  # another block
    assert torch.allclose(many.square().sum(-1).mean(0), torch.tensor(6.0, dtype=many.dtype), atol=0.25)
    assert many.mean((0, 1)).abs().max() < 0.05
    assert torch.allclose(many[:, 0].T.cov(), torch.eye(6, dtype=many.dtype), atol=0.1)


@pytest.mark.parametrize("causal", [False, True])
def test_performer_agrees_with_performer_pytorch(causal: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = pytest.importorskip("performer_pytorch.performer_pytorch", reason="performer-pytorch is not installed")
    q, k, v = tensors(n=40)
    layer = performer(features=32)
    directions = layer.directions(6)
    # it adds 0.0001 to every feature by default; the formula has no such term
    features = {
        side: other.softmax_kernel(x, projection_matrix=directions, is_query=side == "q", eps=0)
        for side, x in (("q", q), ("k", k))
    }
    attend = other.causal_linear_attention_noncuda if causal else other.linear_attention
    options = {"eps": 0.0} if causal else {}
    y, _ = layer(q, k, v, Situation(causal))
    assert torch.allclose(y, attend(features["q"], features["k"], v, **options), atol=1e-9)


def test_the_recurrent_form_gives_what_training_gives() -> None:
    torch.manual_seed(0)
    encoder = Encoder(2, 24, 3, attention=PerformerAttention(features=20), causal=True).double().eval()
    x = torch.randn(2, 9, 24, dtype=torch.float64)
    whole = encoder(x)
    y, state = encoder(x[:, :4], return_state=True)
    steps = [y]
    for t in range(4, 9):
        y_t, state = encoder.step(x[:, t], state)
        steps.append(y_t[:, None])
    assert torch.allclose(torch.cat(steps, 1), whole, atol=1e-10)


def test_directions_change_after_so_many_calls_in_training_and_never_else() -> None:
    q, k, v = tensors()
    layer = performer(redraw=3)
    seen = []
    for _ in range(7):
        layer(q, k, v, Situation(causal=False, training=True))
        seen.append(layer.directions(6))
        layer(q, k, v, Situation(causal=False))
    changes = [not torch.equal(a, b) for a, b in pairwise(seen)]
    assert changes == [False, False, True, False, False, True]


def test_a_checkpoint_brings_the_directions_back() -> None:
    q, k, v = tensors()
    layer, other = performer(redraw=2), performer(redraw=2, seed=9)
    for _ in range(3):
        layer(q, k, v, Situation(causal=False, training=True))
    other.load_state_dict(layer.state_dict())
    assert torch.equal(layer(q, k, v, Situation(False))[0], other(q, k, v, Situation(False))[0])


@pytest.mark.parametrize("causal", [False, True])
def test_masked_tokens_do_not_exist_whatever_they_hold(causal: bool) -> None:
    q, k, v = tensors()
    mask = torch.ones(2, 13) > 0
    mask[0, 9:] = False
    mask[1] = False
    spoilt = [torch.where(mask[:, None, :, None], x, torch.nan).requires_grad_() for x in (q, k, v)]
    layer = performer()
    y, _ = layer(*spoilt, Situation(causal, mask))
    alone, _ = layer(q[:1, :, :9], k[:1, :, :9], v[:1, :, :9], Situation(causal))
    assert torch.allclose(y[:1, :, :9], alone, atol=1e-12)
    assert not y[1].any()
    for gradient in torch.autograd.grad(y.sum(), spoilt):
        assert gradient.isfinite().all()


def test_large_keys_do_not_overflow() -> None:
    q, k, v = (x.float() for x in tensors(n=20, d=32))
    y, _ = performer(64)(30 * q, 30 * k, v[..., :5], Situation(causal=False))
    assert y.isfinite().all()
    assert y.abs().max() <= v.abs().max() + 1e-4


def test_half_precision_rounds_only_at_the_ends() -> None:
    q, k, v = tensors()
    layer = performer()
    low = [x.bfloat16() for x in (q, k, v)]
    y, _ = layer(*low, Situation(causal=False))
    exact, _ = layer(*(x.double() for x in low), Situation(causal=False))
    assert y.dtype == torch.bfloat16
    assert torch.allclose(y.double(), exact, rtol=2**-7, atol=1e-3)


@pytest.mark.parametrize("options", [{"features": 0}, {"redraw": 0}])
def test_impossible_settings_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be 1 or more"):
        PerformerAttention(**options)
