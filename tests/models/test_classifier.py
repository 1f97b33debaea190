"""Classifiers at the paper's sizes, with means over what exists."""

import pytest
import torch

from momentum_transformer import Encoder, LinearAttention, MomentumAttention, SoftmaxAttention
from momentum_transformer.models.classifier import BagOfTokens, PairClassifier, SequenceClassifier


def encoder(attention: object = None) -> Encoder:
    return Encoder(
        2,
        64,
        2,
        attention=LinearAttention() if attention is None else attention,
        causal=False,
        norm="pre",
        feedforward=128,
        activation="gelu",
    )


# the numbers of parameters of the published configurations
@pytest.mark.parametrize(
    ("vocabulary", "length", "classes", "pair", "parameters"),
    [
        (32, 2048, 10, False, 209_802),
        (512, 4096, 2, False, 370_562),
        (512, 4096, 2, True, 395_138),
        (512, 1024, 10, False, 174_986),
        (512, 1024, 2, False, 173_954),
    ],
    ids=["listops", "text", "retrieval", "image", "pathfinder"],
)
def test_sizes_are_those_of_the_paper(vocabulary: int, length: int, classes: int, pair: bool, parameters: int) -> None:
    kind = PairClassifier if pair else SequenceClassifier
    model = kind(vocabulary, classes, encoder(), length=length)
    assert sum(p.numel() for p in model.parameters()) == parameters


@pytest.mark.parametrize("attention", [SoftmaxAttention(), LinearAttention(), MomentumAttention(beta=0.6)])
def test_padding_changes_no_logit(attention: object) -> None:
    torch.manual_seed(0)
    model = SequenceClassifier(20, 3, encoder(attention), length=30).double().eval()
    tokens = torch.randint(1, 20, (4, 11))
    padded = torch.cat([tokens, torch.zeros(4, 9, dtype=torch.long)], 1)
    mask = (torch.arange(20) < 11).expand(4, -1)
    assert torch.allclose(model(padded, mask), model(tokens), atol=1e-12)


def test_the_released_mean_divides_by_the_padded_length() -> None:
    torch.manual_seed(0)
    ours, theirs = (
        SequenceClassifier(20, 3, encoder(), length=30, pool=pool).double().eval() for pool in ("tokens", "positions")
    )
    theirs.load_state_dict(ours.state_dict())
    tokens, mask = torch.randint(1, 20, (4, 20)), (torch.arange(20) < 5).expand(4, -1)
    assert torch.allclose(theirs.sequence(tokens, mask), ours.sequence(tokens, mask) * 5 / 20, atol=1e-12)


def test_a_pair_is_seen_through_one_encoder_and_four_features() -> None:
    torch.manual_seed(0)
    model = PairClassifier(20, 2, encoder(), length=30).eval()
    first, second = torch.randint(0, 20, (2, 3, 12)).unbind(0)
    mask = torch.rand(3, 12) > 0.3
    a, b = model.sequence(first, mask), model.sequence(second)
    expected = model.head(torch.cat([a, b, a * b, a - b], -1))
    assert torch.equal(model(first, mask, second, None), expected)


def test_a_sequence_without_tokens_gives_finite_logits() -> None:
    model = SequenceClassifier(20, 3, encoder(), length=8)
    logits = model(torch.zeros(2, 8, dtype=torch.long), torch.zeros(2, 8, dtype=torch.bool))
    logits.sum().backward()
    assert logits.isfinite().all()


@pytest.mark.parametrize(
    "tokens", [torch.zeros(2, 9, dtype=torch.long), torch.zeros(2, 0, dtype=torch.long), torch.zeros(2, 8)]
)
def test_wrong_tokens_are_refused(tokens: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"tokens must be whole numbers of shape \(batch, 1 … 8\)"):
        SequenceClassifier(20, 3, encoder(), length=8)(tokens)


def test_a_bag_of_tokens_knows_no_order_and_no_padding() -> None:
    model = BagOfTokens(6, 3)
    torch.nn.init.normal_(model.head.weight)
    tokens = torch.tensor([[1, 2, 2, 5]])
    shuffled = torch.tensor([[2, 5, 1, 2, 0, 0]])
    assert torch.allclose(model(tokens), model(shuffled, shuffled > 0))
    assert model.frequencies(tokens, None).tolist() == [[0.0, 1.5, 3.0, 0.0, 0.0, 1.5]]
    pair = BagOfTokens(6, 2, pair=True)
    assert pair(tokens, None, shuffled, shuffled > 0).shape == (1, 2)
