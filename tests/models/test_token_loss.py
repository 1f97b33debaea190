"""The loss is cross-entropy, and so is its gradient."""

import pytest
import torch
from torch.nn import functional

from momentum_transformer.models import token_loss as module
from momentum_transformer.models.token_loss import guess, most_likely, token_loss


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_value_and_gradient_are_those_of_cross_entropy(scale: float) -> None:
    torch.manual_seed(0)
    logits = (scale * torch.randn(7, 11, dtype=torch.float64)).requires_grad_()
    labels = torch.tensor([0, 10, 3, 3, 5, 7, 1])
    mine, theirs = token_loss(logits, labels), functional.cross_entropy(logits, labels)
    assert torch.allclose(mine, theirs, rtol=1e-13)
    found, expected = (torch.autograd.grad(2.5 * loss, logits)[0] for loss in (mine, theirs))
    assert torch.allclose(found, expected, rtol=0, atol=1e-14)


def test_shapes_that_do_not_fit_are_named() -> None:
    with pytest.raises(ValueError, match=r"not \(3, 5\) and \(2,\)"):
        token_loss(torch.zeros(3, 5), torch.zeros(2, dtype=torch.long))
    with pytest.raises(ValueError, match="n of 1 or more"):
        token_loss(torch.zeros(0, 5), torch.zeros(0, dtype=torch.long))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_best_guess_is_the_first_of_the_largest(dtype: torch.dtype) -> None:
    logits = torch.randint(0, 5, (7, 11), generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_()
    expected = [row.index(max(row)) for row in logits.detach().double().tolist()]
    assert most_likely(logits).tolist() == expected
    with torch.inference_mode():
        assert torch.equal(most_likely(logits * 2), most_likely(logits))


@pytest.mark.parametrize("places", [1, 64, 150])  # below, of and beyond one block
def test_a_guess_is_what_all_logits_at_once_say(places: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOGITS", 1)  # the least rows in a block
    torch.manual_seed(0)
    hidden = torch.randn(places, 5, dtype=torch.float64, requires_grad=True)
    embedding = torch.randn(11, 5, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(11, (places,))
    logits = functional.linear(hidden, embedding)
    expected = functional.cross_entropy(logits, labels)
    found = guess(hidden, embedding, labels)
    assert torch.allclose(found.loss, expected, rtol=1e-13)
    assert torch.equal(found.tokens, logits.argmax(-1))
    assert not found.tokens.requires_grad
    for mine, theirs in zip(
        torch.autograd.grad(2.5 * found.loss, (hidden, embedding)),
        torch.autograd.grad(2.5 * expected, (hidden, embedding)),
        strict=True,
    ):
        assert torch.allclose(mine, theirs, rtol=0, atol=1e-14)


def test_a_guess_needs_no_gradients_and_takes_autocast_and_transforms() -> None:
    torch.manual_seed(0)
    hidden, embedding, labels = torch.randn(70, 8), torch.randn(11, 8, requires_grad=True), torch.randint(11, (70,))
    expected = functional.cross_entropy(functional.linear(hidden, embedding), labels)
    with torch.no_grad():
        assert torch.allclose(guess(hidden, embedding, labels).loss, expected)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = guess(hidden, embedding, labels).loss
    assert torch.allclose(rounded, expected, rtol=1e-2)
    assert not torch.equal(rounded, expected)

    def loss(weight: torch.Tensor) -> torch.Tensor:
        return guess(hidden, weight, labels).loss

    assert torch.allclose(torch.func.grad(loss)(embedding), torch.autograd.grad(expected, embedding)[0], atol=1e-6)
    with pytest.raises(ValueError, match="n of 1 or more"):
        guess(hidden[:0], embedding, labels[:0])
    with pytest.raises(ValueError, match=r"not \(70, 11\) and \(69,\)"):
        guess(hidden, embedding, labels[:69])
