"""Linformer against its formula and against another implementation."""

import math

import pytest
import torch

from momentum_transformer import Encoder, LinformerAttention
from momentum_transformer.layers.linformer import Linformer
from momentum_transformer.layers.situation import Situation


def tensors(n: int = 11) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(n)
    return tuple(torch.randn(2, 3, n, d, generator=generator, dtype=torch.float64) for d in (6, 6, 5))


def linformer(length: int = 16, features: int = 4, share: bool = True) -> Linformer:
    torch.manual_seed(0)
    layer = LinformerAttention(length, features, share).build(16, 3)
    assert isinstance(layer, Linformer)
    layer.double()
    with torch.no_grad():
        for weights in layer.parameters():
            weights.mul_(20)  # from 0.02 to where the softmax is not flat
    return layer


def literal(layer: Linformer, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    y = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)
    e = layer.key_weights
    f = e if layer.value_weights is None else layer.value_weights
    for b in range(q.shape[0]):
        real = [j for j in range(k.shape[2]) if mask[b, j]]
        for h in range(q.shape[1]):
            keys = [sum((e[h, r, j] * k[b, h, j] for j in real), torch.zeros(6)) for r in range(e.shape[1])]
            values = [sum((f[h, r, j] * v[b, h, j] for j in real), torch.zeros(5)) for r in range(e.shape[1])]
            for i in real:
                weights = torch.stack([q[b, h, i] @ key / math.sqrt(6) for key in keys]).softmax(0)
                y[b, h, i] = sum(w * value for w, value in zip(weights, values, strict=True))
    return y


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("n", [16, 11, 4, 1])
def test_linformer_is_its_formula(n: int, masked: bool, share: bool) -> None:
    q, k, v = tensors(n)
    mask = torch.rand(2, n, generator=torch.Generator().manual_seed(3)) > 0.4 if masked else torch.ones(2, n) > 0
    layer = linformer(share=share)
    y, _ = layer(q, k, v, Situation(False, mask if masked else None))
    assert torch.allclose(y, literal(layer, q, k, v, mask), atol=1e-12)


def test_padding_changes_nothing_whatever_it_holds() -> None:
    q, k, v = tensors(11)
    mask = (torch.arange(11) < 7).expand(2, -1)
    layer = linformer()
    spoilt = [torch.where(mask[:, None, :, None], x, torch.nan).requires_grad_() for x in (q, k, v)]
    y, _ = layer(*spoilt, Situation(False, mask))
    alone, _ = layer(q[:, :, :7], k[:, :, :7], v[:, :, :7], Situation(False))
    assert torch.allclose(y[:, :, :7], alone, atol=1e-12)
    assert not y[:, :, 7:].any()
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(y.sum(), spoilt))


@pytest.mark.parametrize("n", [16, 9])
def test_linformer_agrees_with_the_linformer_package(n: int) -> None:
    other = pytest.importorskip("linformer.linformer", reason="linformer is not installed")
    torch.manual_seed(0)
    theirs = other.LinformerSelfAttention(18, 16, k=4, heads=3).double()
    layer = linformer(share=False)
    assert layer.value_weights is not None
    with torch.no_grad():  # theirs has one set of weights for all heads
        layer.key_weights.copy_(theirs.proj_k.T.expand(3, 4, 16))
        layer.value_weights.copy_(theirs.proj_v.T.expand(3, 4, 16))
    x = torch.randn(2, n, 18, dtype=torch.float64)
    q, k, v = (
        projection(x).unflatten(-1, (3, 6)).transpose(1, 2) for projection in (theirs.to_q, theirs.to_k, theirs.to_v)
    )
    y, _ = layer(q, k, v, Situation(causal=False))
    assert torch.allclose(theirs.to_out(y.transpose(1, 2).flatten(2)), theirs(x), atol=1e-12)


def test_linformer_trains_in_an_encoder() -> None:
    model = Encoder(2, 12, 3, attention=LinformerAttention(16, 4), causal=False)
    model(torch.randn(2, 10, 12)).square().sum().backward()
    weights = [p.grad for name, p in model.named_parameters() if name.endswith("key_weights")]
    assert len(weights) == 2
    for gradient in weights:
        assert gradient is not None
        assert gradient[..., :10].abs().sum() > 0
        assert not gradient[..., 10:].any()


def test_what_linformer_cannot_do_is_said() -> None:
    with pytest.raises(ValueError, match="LinformerAttention cannot be causal"):
        Encoder(1, 12, 3, attention=LinformerAttention(16), causal=True)(torch.randn(1, 5, 12))
    with pytest.raises(ValueError, match="built for up to 16 tokens, not 17; raise its length"):
        Encoder(1, 12, 3, attention=LinformerAttention(16), causal=False)(torch.randn(1, 17, 12))
    with pytest.raises(ValueError, match="length and features must be 1 or more"):
        LinformerAttention(0)
