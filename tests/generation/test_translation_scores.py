"""Scores are sacrebleu's own, with signatures; what cannot be scored is refused."""

import sys

import pytest

from momentum_transformer.generation.translation_scores import ScoreError, score

sacrebleu = pytest.importorskip("sacrebleu", reason="sacrebleu is not installed")

REFERENCES = ["Ein Mann läuft, und ein Hund läuft mit.", "Zwei Kinder spielen im Park mit einem Ball."]
HYPOTHESES = ["Ein Mann läuft, und eine Katze läuft mit.", "Zwei Kinder spielen mit einem Ball im Park."]


def test_perfect_and_hopeless_translations_have_the_extreme_scores() -> None:
    perfect = score(REFERENCES, REFERENCES, tokenized=(REFERENCES, REFERENCES))
    assert [perfect.bleu, perfect.chrf, perfect.tokenized_bleu] == pytest.approx([100, 100, 100])
    hopeless = score(["", ""], REFERENCES)
    assert (hopeless.bleu, hopeless.chrf, hopeless.tokenized_bleu) == (0, 0, None)


def test_scores_are_those_of_the_corpus_functions() -> None:
    result = score(HYPOTHESES, REFERENCES)
    assert result.bleu == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score
    assert result.chrf == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score
    assert 0 < result.bleu < 100


def test_signatures_name_the_tokeniser_and_the_version() -> None:
    result = score(HYPOTHESES, REFERENCES)
    assert "tok:13a" in result.bleu_signature
    assert "case:mixed" in result.bleu_signature
    assert result.bleu_signature.endswith(f"version:{sacrebleu.__version__}")
    assert "nc:6" in result.chrf_signature


def test_tokens_are_scored_as_they_are() -> None:
    whole = score(["a b c d-e ."], ["a b c d - e ."], tokenized=(["a b c d-e ."], ["a b c d-e ."]))
    assert whole.tokenized_bleu == pytest.approx(100)
    assert whole.bleu < 100


def test_tokenised_full_stops_make_no_noise(caplog: pytest.LogCaptureFixture) -> None:
    lines = ["Ein Mann läuft ."] * 120
    score(["Ein Mann läuft."] * 120, ["Ein Mann läuft."] * 120, tokenized=(lines, lines))
    assert not caplog.records


@pytest.mark.parametrize(
    ("hypotheses", "references", "message"),
    [
        (["a"], ["a", "b"], "2 references need as many hypotheses, not 1"),
        ([], [], "there is nothing to score"),
        ("a", "a", "lists of sentences, not one string"),
    ],
)
def test_what_cannot_be_scored_is_refused(hypotheses: list[str], references: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        score(hypotheses, references)
    with pytest.raises(ValueError, match=message):
        score(["a"], ["a"], tokenized=(hypotheses, references))


def test_a_missing_package_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "sacrebleu"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(ScoreError, match=r"scores need sacrebleu.*: pip install .*\[translation\]'"):
        score(["a"], ["a"])
