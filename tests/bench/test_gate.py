"""The gate lets through who computes the same function, and nobody else."""

from collections.abc import Callable

import pytest
import torch

from momentum_transformer import elu_plus_one, linear_attention, momentum_attention, softmax_attention
from momentum_transformer.bench.contestants import BETA, OWN, PEERS, SDPA, Contestant, UnavailableError, find
from momentum_transformer.bench.gate import judge
from momentum_transformer.bench.measured_shapes import BenchError

Tensor = torch.Tensor


def contestant(attend: Callable[[Tensor, Tensor, Tensor], Tensor], computes: str = "linear") -> Contestant:
    return Contestant("probe", computes, lambda: attend)


def shifted(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return linear_attention(q, k, v) * (1 + 1e-6)


def without_gradient_of_k(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return linear_attention(q, k.detach(), v) + 0 * k.sum()


def nan_at_the_end(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return linear_attention(q, k, v) + torch.tensor([*[0.0] * (v.shape[-1] - 1), float("nan")], dtype=v.dtype)


def only_even(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    if q.shape[2] % 2:
        raise ValueError("even lengths only")
    return linear_attention(q, k, v)


def wrong_at_wide(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return linear_attention(q, k, v) * (2 if q.shape[-1] == 16 else 1)


def float32_is_wrong(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return linear_attention(q, k, v) * (1.01 if q.dtype == torch.float32 else 1)


@pytest.mark.parametrize(
    ("attend", "computes", "complaint"),
    [
        (shifted, "linear", "is off by 1.0e-06"),
        (softmax_attention, "linear", "is off by"),
        (linear_attention, "momentum", "is off by"),
        (linear_attention, "softmax", "is off by"),
        (without_gradient_of_k, "linear", "the gradient of k is off by"),
        (nan_at_the_end, "linear", "y is off by inf"),
        (only_even, "linear", "fails at (2, 3, 67, 7): even lengths only"),
        (wrong_at_wide, "linear", "(1, 2, 150, 16)"),
        (float32_is_wrong, "linear", "float32"),
        (lambda q, k, v: linear_attention(q, k, v).squeeze(1)[..., :1], "linear", "fails at"),
    ],
)
def test_a_wrong_contestant_is_caught(attend: Callable[..., Tensor], computes: str, complaint: str) -> None:
    verdict = judge(contestant(attend, computes), [16])
    assert verdict.status == "disagrees"
    assert not verdict.passed
    assert complaint in verdict.reason


def test_who_computes_in_float32_only_is_held_to_float32() -> None:
    def narrow(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return linear_attention(q.float(), k.float(), v.float()).to(v.dtype)

    assert not judge(contestant(narrow), [8]).passed
    assert judge(Contestant("probe", "linear", lambda: narrow, double=False), [8]).passed


def test_what_is_added_to_the_denominator_is_part_of_the_function() -> None:
    def large(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return linear_attention(q, k, v, eps=1e-3)

    assert not judge(contestant(large), [8]).passed
    assert judge(Contestant("probe", "linear", lambda: large, eps=1e-3), [8]).passed


@pytest.mark.parametrize("one", [*OWN, SDPA], ids=lambda one: one.name)
def test_our_own_backends_and_sdpa_pass(one: Contestant) -> None:
    verdict = judge(one, [16, 32])
    if verdict.status == "unavailable":
        pytest.skip(verdict.reason)
    assert verdict.passed, verdict.reason


@pytest.mark.parametrize("one", PEERS, ids=lambda one: one.name)
def test_peers_that_are_installed_pass(one: Contestant) -> None:
    verdict = judge(one, [16, 32])
    if verdict.status == "unavailable":
        pytest.skip(verdict.reason)
    assert verdict.passed, verdict.reason


def test_who_is_not_installed_says_so() -> None:
    def build() -> Callable[..., Tensor]:
        raise ModuleNotFoundError("No module named 'peer'")

    one = Contestant("peer", "linear", build)
    with pytest.raises(UnavailableError, match="No module named 'peer'"):
        one.load()
    assert judge(one, [8]).status == "unavailable"


def test_contestants_are_found_by_name() -> None:
    assert find("chunked momentum").computes == "momentum"
    with pytest.raises(BenchError, match="unknown contestant 'chunkd' \\(known: native linear"):
        find("chunkd")


def test_our_contestants_are_what_users_call() -> None:
    q, k, v = (torch.randn(1, 2, 9, 4) for _ in range(3))
    assert torch.equal(
        find("chunked momentum").load()(q, k, v), momentum_attention(q, k, v, beta=BETA, backend="chunked")
    )
    assert torch.equal(find("chunked linear").load()(q, k, v), linear_attention(q, k, v, backend="chunked"))
    assert (elu_plus_one(q) > 0).all()  # so that peers may be fed its logarithm
