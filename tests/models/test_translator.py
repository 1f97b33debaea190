"""The refining translator: its parts are their definitions, and no sentence depends on its batch."""

import math
from fractions import Fraction
from typing import Any

import pytest
import torch
from torch.nn import functional

from momentum_transformer import MomentumResidual, ReformerAttention, SoftmaxAttention
from momentum_transformer.layers import Attention, Block, HighwayFeedForward
from momentum_transformer.models import NonAutoregressiveTranslator
from momentum_transformer.models.nonautoregressive_translator import uniform_map
from tests.family import RESIDUALS

from .sentences import MIXERS, VOCABULARY, refining, sentences, sizes

LENGTHS, TARGETS = (5, 1, 7, 7), (7, 3, 1, 5)


def test_uniform_mapping_stretches_each_source_over_its_target() -> None:
    pairs = [(s, t) for s in range(1, 9) for t in range(1, 12)]
    source, target = torch.tensor(pairs).T
    places = uniform_map(source, target)
    for row, (s, t) in zip(places.tolist(), pairs, strict=True):
        expected = [math.floor(Fraction(i * (s - 1), max(t - 1, 1)) + Fraction(1, 2)) for i in range(t)]
        assert row[:t] == expected
        assert max(row) < s
        if t > 1:
            assert (row[0], row[t - 1]) == (0, s - 1)


def test_the_first_input_is_the_mapped_source_embedding() -> None:
    model, (source, mask) = refining("momentum"), sentences(*LENGTHS)
    encoded = model.encode(source, mask)
    x = model.first_input(encoded, torch.tensor(TARGETS))
    rate = 10_000 ** (-torch.arange(0, 16, 2) / 16)
    for row, (s, t) in enumerate(zip(LENGTHS, TARGETS, strict=True)):
        for i in range(t):
            place = math.floor(Fraction(i * (s - 1), max(t - 1, 1)) + Fraction(1, 2))
            waves = torch.stack([(place * rate).sin(), (place * rate).cos()], -1).flatten()
            expected = 4 * model.encoder.embedding[source[row, place]] + waves
            assert torch.allclose(x[row, i], expected, atol=1e-6)


def test_a_decoder_layer_is_its_definition() -> None:
    """Self, positional and cross attention by one velocity, then the highway network, all after eq. 3 and 4."""
    model, (source, mask) = refining("softmax", "momentum", dropout=0.0), sentences(6)
    layer = model.decoder1.layers[0]
    assert isinstance(layer, Block)
    encoded = model.encode(source, mask)
    x = torch.randn(1, 4, 16, dtype=torch.float64)
    places = model.decoder1.places(4)
    found, velocity, _ = layer(x, None, places=places, source=model.sources(encoded, first=True)[0])

    def attend(part: Any, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        q, k, v = part.query(queries), part.key(keys), part.value(values)
        heads = [
            functional.softmax(q[..., h] @ k[..., h].mT / 8**0.5, -1) @ v[..., h] for h in (slice(0, 8), slice(8, 16))
        ]
        out: torch.Tensor = part.out(torch.cat(heads, -1))
        return out

    v = torch.zeros_like(x)
    for step in ("own", "positional", "cross"):
        queries = places if step == "positional" else x
        keys = encoded.layers[0] if step == "cross" else queries
        attention = layer.get_submodule(f"{step}.attention")
        v = 0.9 * v + attend(attention, queries, keys, encoded.layers[0] if step == "cross" else x)
        x = functional.layer_norm(x + 0.7 * v, (16,))
    highway = layer.feedforward
    assert isinstance(highway, HighwayFeedForward)
    change, gate = (network.leave(functional.relu(network.enter(x))) for network in (highway.change, highway.gate))
    g = gate.sigmoid()
    assert torch.allclose(found, functional.layer_norm(x * g + change * (1 - g), (16,)), atol=1e-12)
    assert torch.allclose(velocity, v, atol=1e-12)


def test_parameters_keep_their_names_and_their_order() -> None:
    """Checkpoints have weights by name, and what an optimizer remembers by number."""
    layer = refining("linear").decoder1.layers[0]
    modules = dict.fromkeys(name.rpartition(".")[0] for name, _ in layer.named_parameters())
    attention = [f"attention.{part}" for part in ("query", "key", "value", "out")]
    assert list(modules) == [
        *(f"{sight}.{part}" for sight in ("own", "positional", "cross") for part in (*attention, "norm")),
        *(f"feedforward.{network}.{part}" for network in ("change", "gate") for part in ("enter", "leave")),
        "feedforward_norm",
    ]


def test_each_decoder_layer_sees_its_own_encoder_layer() -> None:
    model, (source, mask) = refining("linear"), sentences(*LENGTHS)
    encoded = model.encode(source, mask)
    for layer, hidden, seen in zip(
        model.decoder2.layers, encoded.layers, model.sources(encoded, first=False), strict=True
    ):
        assert isinstance(layer, Block)
        cross = layer.get_submodule("cross.attention")
        assert isinstance(cross, Attention)
        assert torch.equal(seen.k, cross.project(hidden)[0])
    assert not torch.equal(encoded.layers[0], encoded.layers[1])


def test_length_labels_are_clamped_offsets() -> None:
    model = refining("linear", max_offset=3)
    (_, source), (_, target) = sentences(5, 2, 9), sentences(6, 9, 1)
    assert model.length_labels(source, target).tolist() == [1 + 3, 3 + 3, -3 + 3]


def test_predicted_lengths_are_the_most_likely_offset_and_at_least_one() -> None:
    model, (source, mask) = refining("linear", max_offset=3), sentences(5, 2, 9)
    with torch.no_grad():
        model.offset.weight.zero_()
        model.offset.bias.copy_(functional.one_hot(torch.tensor(0), 7))
    assert model.predict_lengths(model.encode(source, mask)).tolist() == [2, 1, 6]


@pytest.mark.parametrize("residual", RESIDUALS)
@pytest.mark.parametrize("mixer", MIXERS)
def test_no_sentence_depends_on_its_batch(mixer: str, residual: str) -> None:
    model = refining(mixer, residual)
    (source, source_mask), (target, target_mask) = sentences(*LENGTHS), sentences(*TARGETS, seed=1)
    together, lengths = model(source, source_mask, target, target_mask, iterations=3)
    start = 0
    for row, (s, t) in enumerate(zip(LENGTHS, TARGETS, strict=True)):
        one = slice(row, row + 1)
        alone, length = model(
            source[one, :s], source_mask[one, :s], target[one, :t], target_mask[one, :t], iterations=3
        )
        for mine, ours in zip(alone, together, strict=True):
            assert torch.allclose(mine, ours[start : start + t], rtol=0, atol=1e-10)
        assert torch.allclose(length[0], lengths[row], rtol=0, atol=1e-10)
        start += t


def test_iterations_can_be_taken_by_hand() -> None:
    model = refining("momentum", "adaptive")
    (source, source_mask), (target, target_mask) = sentences(*LENGTHS), sentences(*TARGETS, seed=1)
    noisy = [None, sentences(*TARGETS, seed=2)[0]]
    logits, _ = model(source, source_mask, target, target_mask, iterations=3, noisy=noisy)
    encoded = model.encode(source, source_mask)
    x = model.first_input(encoded, torch.tensor(TARGETS))
    for i in range(3):
        hidden = model.decode(encoded, x, target_mask, first=i == 0)
        scores = model.logits(hidden, first=i == 0)
        assert torch.allclose(logits[i], scores[target_mask], atol=1e-12)
        given = noisy[i] if i < 2 else None
        x = model.next_input(torch.where(target_mask, scores.argmax(-1), 1) if given is None else given, hidden)


def test_words_are_found_a_few_rows_of_logits_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    model = refining("linear", "plain")
    _, mask = sentences(70, 3, 60)
    hidden = torch.randn(3, 70, model.decoder1.width, dtype=torch.float64)
    expected = model.tokens(model.logits(hidden[mask], first=True), mask)
    monkeypatch.setattr("momentum_transformer.models.nonautoregressive_translator.LOGITS", 1)
    seen: list[int] = []
    logits = model.decoder1.logits

    def watched(rows: torch.Tensor) -> torch.Tensor:
        seen.append(len(rows))
        return logits(rows)

    monkeypatch.setattr(model.decoder1, "logits", watched)
    assert torch.equal(model.words(hidden, mask, first=True), expected)
    assert seen == [64, 64, 5]


@pytest.mark.parametrize("residual", ["plain", "adaptive"])
@pytest.mark.parametrize("mixer", MIXERS)
def test_gradients_reach_every_parameter(mixer: str, residual: str) -> None:
    model = refining(mixer, residual).train()
    (source, source_mask), (target, target_mask) = sentences(*LENGTHS), sentences(*TARGETS, seed=1)
    logits, lengths = model(source, source_mask, target, target_mask, iterations=2)
    labels = model.length_labels(source_mask, target_mask)
    sum(functional.cross_entropy(each, target[target_mask]) for each in logits).backward()  # type: ignore[union-attr]
    assert model.offset.weight.grad is None
    assert all(p.grad is not None for name, p in model.named_parameters() if not name.startswith("offset"))
    assert model.encoder.embedding.grad is not None
    before = model.encoder.embedding.grad.clone()
    functional.cross_entropy(lengths, labels).backward()
    assert torch.equal(before, model.encoder.embedding.grad), "the length predictor must not move the encoder"
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        assert torch.isfinite(parameter.grad).all(), name
        # all keys of positional and softmax attention may move together without effect
        assert parameter.grad.abs().max() > 0 or name.endswith("key.bias"), name


def test_it_learns_to_copy() -> None:
    torch.manual_seed(0)
    options = sizes("momentum", depth=1, width=32, dropout=0.0)
    model = NonAutoregressiveTranslator(VOCABULARY, **options)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for step in range(60):
        tokens, mask = sentences(*[3 + (step + i) % 5 for i in range(32)], seed=step)
        logits, lengths = model(tokens, mask, tokens, mask, iterations=2)
        labels = model.length_labels(mask, mask)
        loss = sum(functional.cross_entropy(each, tokens[mask]) for each in logits) + functional.cross_entropy(
            lengths, labels
        )
        assert isinstance(loss, torch.Tensor)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    tokens, mask = sentences(*range(3, 8), seed=1000)
    logits, _ = model(tokens, mask, tokens, mask, iterations=2)
    assert (logits[-1].argmax(-1) == tokens[mask]).double().mean() > 0.9
    assert model.predict_lengths(model.encode(tokens, mask)).tolist() == list(range(3, 8))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 3}, "width must be a multiple of heads, not width=16 and heads=3"),
        ({"depth": 0}, "depth and feedforward must be 1 or more, not 0 and 24"),
        ({"attention": "momentum"}, "attention must be a mixer such as .*, not 'momentum'"),
        ({"end": 19}, "vocabulary must hold padding=1 and end=19"),
        ({"attention": ReformerAttention()}, "attention must be a mixer with keys of its own, not ReformerAttention"),
    ],
)
def test_impossible_translators_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NonAutoregressiveTranslator(VOCABULARY, **(sizes("momentum") | options))


def test_wrong_inputs_are_named() -> None:
    model, (tokens, mask) = refining("momentum"), sentences(3, 2)
    hole = torch.tensor([[True, False, True], [True, True, False]])
    cases: list[tuple[tuple[torch.Tensor, ...], str]] = [
        ((tokens[0], mask, tokens, mask), r"source must be int64 of shape \(batch, length\), not empty"),
        ((tokens.int(), mask, tokens, mask), "source must be int64 .* not torch.int32"),
        ((tokens[:, :0], mask[:, :0], tokens, mask), r"source must be int64 .* not empty"),
        ((tokens, mask.long(), tokens, mask), r"source_mask must be bool of shape \(2, 3\), not torch.int64"),
        ((tokens, mask, tokens, mask[:, :2]), r"target_mask must be bool of shape \(2, 3\)"),
        ((tokens, hole, tokens, mask), "source_mask must be True at the tokens of each sentence, one or more"),
        ((tokens, mask, tokens, mask & False), "target_mask must be True at the tokens of each sentence"),
        ((tokens + 17, mask, tokens, mask), "source must have tokens from 0 to 18, not"),
        ((tokens, mask, tokens - 9, mask), "target must have tokens from 0 to 18, not -"),
        ((tokens, mask, tokens[:1], mask[:1]), "target must have 2 sentences like source, not 1"),
    ]
    for arguments, message in cases:
        with pytest.raises(ValueError, match=message):
            model(*arguments, iterations=1)
    with pytest.raises(ValueError, match="iterations must be 1 or more, not 0"):
        model(tokens, mask, tokens, mask, iterations=0)
    with pytest.raises(ValueError, match="noisy must have at most 1 entries"):
        model(tokens, mask, tokens, mask, iterations=2, noisy=[None, tokens])
    with pytest.raises(ValueError, match=r"noisy\[0\] must have the shape of target, \(2, 3\), not \(2, 2\)"):
        model(tokens, mask, tokens, mask, iterations=2, noisy=[tokens[:, :2]])
    with pytest.raises(ValueError, match=r"x must have shape \(2, T, 16\), not \(2, 3, 8\)"):
        model.decode(model.encode(tokens, mask), torch.zeros(2, 3, 8).double(), mask, first=True)


def test_every_stack_has_an_embedding_of_its_own() -> None:
    model = NonAutoregressiveTranslator(
        40_004,
        depth=5,
        width=278,
        heads=2,
        feedforward=507,
        attention=SoftmaxAttention(),
        residual=MomentumResidual(0.3, 0.9),
        dropout=0.1,
    )
    assert sum(p.numel() for p in (s.embedding for s in (model.encoder, model.decoder1, model.decoder2))) == (
        3 * 40_004 * 278
    )
    assert 52e6 < sum(p.numel() for p in model.parameters()) < 54e6
