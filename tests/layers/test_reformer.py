"""Hashing attention against a literal version, one query at a time."""

import math

import pytest
import torch

from momentum_transformer import Encoder, ReformerAttention
from momentum_transformer.ops.lsh import SELF_PENALTY, hash_buckets, lsh_attention


def literal_round(
    qk: torch.Tensor, v: torch.Tensor, buckets: list[int], size: int, causal: bool, mask: list[bool]
) -> torch.Tensor:
    """One sequence (n, d): sort, cut, look at the own chunk and the one before."""
    n = len(buckets)
    real = [i for i in range(n) if mask[i]]
    order = sorted(real, key=lambda i: (buckets[i], i))
    y = torch.zeros_like(v)
    for rank, i in enumerate(order):
        chunk = rank // size
        window = [j for other, j in enumerate(order) if other // size in (chunk, chunk - 1)]
        keys = [j for j in window if j <= i or not causal]
        scores = [
            (qk[i] @ (qk[j] / qk[j].norm()) / math.sqrt(qk.shape[1])).item() - SELF_PENALTY * (i == j) for j in keys
        ]
        weights = torch.tensor(scores, dtype=v.dtype).softmax(0)
        y[i] = sum(w * v[j] for w, j in zip(weights, keys, strict=True))
    return y


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("n", "size"), [(19, 4), (8, 4), (3, 4), (1, 4), (12, 32)])
def test_hashing_attention_equals_the_literal_version(n: int, size: int, causal: bool, masked: bool) -> None:
    generator = torch.Generator().manual_seed(n)
    qk, v = (torch.randn(2, 3, n, 6, generator=generator, dtype=torch.float64) for _ in range(2))
    rotations = torch.randn(2, 6, 3, generator=generator, dtype=torch.float64)
    mask = torch.rand(2, n, generator=generator) > 0.4 if masked else torch.ones(2, n, dtype=torch.bool)
    y = lsh_attention(qk, v, rotations, chunk_size=size, causal=causal, mask=mask[:, None] if masked else None)
    for sample in range(2):
        for head in range(3):
            rounds = [
                literal_round(
                    qk[sample, head],
                    v[sample, head],
                    hash_buckets(qk[sample, head], rotation).tolist(),
                    size,
                    causal,
                    mask[sample].tolist(),
                )
                for rotation in rotations
            ]
            assert torch.allclose(y[sample, head], torch.stack(rounds).mean(0), atol=1e-12)


def test_causal_reformer_never_sees_values_of_the_future() -> None:
    v = torch.randn(1, 1, 20, 4, requires_grad=True)
    qk = torch.randn(1, 1, 20, 4)
    y = lsh_attention(qk, v, torch.randn(3, 4, 2), chunk_size=5, causal=True)
    (grad,) = torch.autograd.grad(y[0, 0, 7].sum(), v)
    assert not grad[0, 0, 8:].any()
    assert grad[0, 0, :8].any()


def test_reformer_trains_in_an_encoder_and_says_that_it_has_no_state() -> None:
    model = Encoder(2, 16, 2, attention=ReformerAttention(buckets=4, rounds=2, chunk_size=4))
    x = torch.randn(2, 10, 16)
    model(x).square().sum().backward()
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in model.parameters())
    with pytest.raises(ValueError, match="ReformerAttention has no state"):
        model(x, return_state=True)


@pytest.mark.parametrize(
    ("options", "message"), [({"buckets": 3}, "buckets must be even"), ({"rounds": 0}, "must be 1 or more")]
)
def test_reformer_refuses_impossible_settings(options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ReformerAttention(**options)
