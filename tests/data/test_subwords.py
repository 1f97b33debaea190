"""Subwords: text goes through them and comes back; the same text gives the same vocabulary; damage is named."""

import sys
from pathlib import Path

import numpy as np
import pytest

from momentum_transformer.data import subwords as module
from momentum_transformer.data.folder import DataError
from momentum_transformer.data.parallel_text import ParallelText, load_multi30k
from momentum_transformer.data.subwords import (
    END,
    PADDING,
    START,
    UNKNOWN,
    Subwords,
    encode_text,
    load_encoded,
    load_subwords,
)

from .official import official

for package in ("sacremoses", "sentencepiece"):
    pytest.importorskip(package, reason=f"{package} is not installed")

TEXT = ParallelText(
    ["The dog's ball is red, isn't it?", "A man (old) runs & jumps.", "Two dogs play with a red ball."],
    ["Der Ball des Hundes ist rot, oder?", "Ein alter Mann läuft & springt.", "Zwei Hunde spielen „Ball“."],
)


@pytest.fixture(scope="module")
def subwords() -> Subwords:
    return Subwords.train(TEXT, pieces=80)


def test_the_same_text_gives_the_same_vocabulary(subwords: Subwords) -> None:
    again = Subwords.train(TEXT, pieces=80)
    assert again.model == subwords.model
    assert again.digest == subwords.digest
    assert len(subwords) == 80


def test_the_digest_tells_models_and_languages_apart(subwords: Subwords) -> None:
    others = [
        Subwords.train(TEXT, pieces=81),
        Subwords(subwords.model, "en", "fr"),
        Subwords(subwords.model, "de", "en"),
    ]
    assert len({subwords.digest, *(other.digest for other in others)}) == 4


@pytest.mark.parametrize("line", TEXT.targets)
def test_text_comes_back(line: str, subwords: Subwords) -> None:
    ids = subwords.encode_target(line)
    assert min(ids) > END
    assert subwords.text(ids) == line
    assert subwords.tokens(ids) == subwords.tokenize_target(line)


def test_tokens_are_moses_tokens_without_escapes(subwords: Subwords) -> None:
    assert subwords.tokens(subwords.encode_source(TEXT.sources[0])) == "The dog 's ball is red , isn 't it ?"
    assert subwords.tokens(subwords.encode_source(TEXT.sources[1])) == "A man ( old ) runs & jumps ."


def test_numbers_end_at_the_first_end_and_specials_are_dropped(subwords: Subwords) -> None:
    one, two = (subwords.encode_target(line) for line in TEXT.targets[:2])
    assert subwords.text([START, *one[:2], UNKNOWN, *one[2:], PADDING, END, *two, END]) == TEXT.targets[0]
    assert subwords.text([]) == subwords.text([END, *one]) == ""
    assert subwords.text(np.array(one)) == TEXT.targets[0]


def test_a_number_that_is_no_piece_is_refused(subwords: Subwords) -> None:
    for number in (80, -1):
        with pytest.raises(ValueError, match=f"{number} is not a piece of this vocabulary, which has 0 to 79"):
            subwords.tokens([5, number])


def test_empty_lines_are_empty(subwords: Subwords) -> None:
    assert subwords.encode_source("") == subwords.encode_target(" \t") == []
    assert subwords.unknown_share("") == 0


def test_an_unknown_script_shows(subwords: Subwords) -> None:
    assert subwords.unknown_share("Привет мир") == 1
    assert subwords.unknown_share("A red dog.") == 0
    assert 0 < subwords.unknown_share("A red собака.") < 1


def test_too_many_or_too_few_pieces_are_refused_by_number() -> None:
    with pytest.raises(DataError, match=r"10 pieces is too small .* need at least (\d+)$") as small:
        Subwords.train(TEXT, pieces=10)
    least = int(str(small.value).split()[-1])
    assert len(Subwords.train(TEXT, pieces=least)) == least
    with pytest.raises(
        DataError, match=r"this text has (\d+) pieces at most; ask for no more, not for 5,000"
    ) as large:
        Subwords.train(TEXT, pieces=5000)
    most = int(str(large.value).split()[3])
    assert len(Subwords.train(TEXT, pieces=most)) == most
    with pytest.raises(DataError, match="the text is empty"):
        Subwords.train(ParallelText([], []), pieces=100)


def test_long_lines_teach_as_well(subwords: Subwords) -> None:
    long = ParallelText([" ".join(TEXT.sources) + " ж" * 5000], [" ".join(TEXT.targets)])
    assert Subwords.train(long, pieces=80).unknown_share("ж") == 0
    assert subwords.unknown_share("ж") == 1


def test_no_character_keeps_a_line_from_teaching() -> None:
    strange = "ж ▁ ▅ \u2028 \u200b 👩\u200d👧 \ufffd x\x00y <unk> </s> ⁇ ﬁ ½ ｆ"
    subwords = Subwords.train(ParallelText([strange, *TEXT.sources], ["x", *TEXT.targets]), pieces=90)
    assert subwords.unknown_share(strange.replace("▅", "")) == 0
    assert (
        subwords.tokens(subwords.encode_source(strange)) == "ж \u200b 👩 \u200d 👧 \ufffd xy < unk > < / s > ⁇ ﬁ ½ ｆ"
    )


def test_half_a_character_is_refused(subwords: Subwords) -> None:
    with pytest.raises(DataError, match=r"'\\ud83d' at place 3 of a line is half a character; remove it"):
        subwords.encode_source("a \ud83d b")


@pytest.mark.parametrize("language", ["", "german!", "DE"])
def test_a_language_has_a_code(language: str) -> None:
    with pytest.raises(DataError, match="a language is named by its code, such as en or de"):
        Subwords.train(TEXT, pieces=80, target_language=language)


def test_a_vocabulary_comes_back_from_its_file(subwords: Subwords, tmp_path: Path) -> None:
    path = tmp_path / "new" / "subwords.model"
    subwords.save(path)
    loaded = Subwords.load(path)
    assert (loaded.digest, loaded.target_language, len(loaded)) == (subwords.digest, "de", 80)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    with pytest.raises(DataError, match=r"cannot be written"):
        subwords.save(path / "below")


def test_a_damaged_vocabulary_is_named_in_one_line(subwords: Subwords, tmp_path: Path) -> None:
    path = tmp_path / "subwords.model"
    with pytest.raises(DataError, match=r"there is no vocabulary .*subwords.model"):
        Subwords.load(path)
    subwords.save(path)
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[whole.index("▁".encode(), 300)] ^= 1
    header = whole.index(b"\n") + 1
    for content in (
        b"",
        b"{}\n",
        b"[1]\nx",
        b"\xff\xfe\n",
        whole[header:],
        whole[:header],
        whole[:-1],
        bytes(flipped),
    ):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"subwords.model is damaged or not a vocabulary") as error:
            Subwords.load(path)
        assert "\n" not in str(error.value)


def test_a_model_with_other_special_pieces_is_refused() -> None:
    import io

    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT.sources), model_writer=model, vocab_size=50, model_type="bpe", minloglevel=2
    )
    with pytest.raises(DataError, match=r"unknown, padding, start and end are \(0, -1, 1, 2\)"):
        Subwords(model.getvalue(), "en", "de")


def test_targets_end_and_sources_have_no_specials(subwords: Subwords) -> None:
    sources, targets = encode_text(TEXT, subwords)
    assert len(sources) == len(targets) == 3
    assert sources.flat.dtype == np.int32
    for row in range(3):
        assert sources.rows(np.array([row]))[0][0].tolist() == subwords.encode_source(TEXT.sources[row])
        assert targets.rows(np.array([row]))[0][0].tolist() == [*subwords.encode_target(TEXT.targets[row]), END]


def test_rows_come_in_the_order_asked_for_and_padded(subwords: Subwords) -> None:
    sources, _ = encode_text(ParallelText(["", *TEXT.sources], ["x", *TEXT.targets]), subwords)
    tokens, lengths = sources.rows(np.array([2, 0, 2, 1]))
    assert tokens.dtype == np.int64
    assert tokens.shape == (4, lengths.max())
    for row, length, number in zip(tokens, lengths, (2, 0, 2, 1), strict=True):
        assert row[:length].tolist() == ([] if number == 0 else subwords.encode_source(TEXT.sources[number - 1]))
        assert (row[length:] == PADDING).all()
    assert sources.rows(np.array([0]))[0].tolist() == [[PADDING]]


def test_the_cache_gives_what_encoding_gives_and_encodes_once(
    monkeypatch: pytest.MonkeyPatch, subwords: Subwords
) -> None:
    fresh = encode_text(TEXT, subwords)
    load_encoded(TEXT, subwords, "tests-encoded", {"part": "train"})
    vocabulary = load_subwords(TEXT, pieces=80)
    monkeypatch.setattr(module, "encode_text", None)
    monkeypatch.setattr(Subwords, "train", None)
    for side, kept in zip(fresh, load_encoded(TEXT, subwords, "tests-encoded", {"part": "train"}), strict=True):
        assert np.array_equal(side.flat, kept.flat)
        assert np.array_equal(side.offsets, kept.offsets)
    assert load_subwords(TEXT, pieces=80).digest == vocabulary.digest == subwords.digest
    other = ParallelText(TEXT.sources, [*TEXT.targets[:2], "Anders."])
    with pytest.raises(TypeError):  # another text is not in the cache
        load_encoded(other, subwords, "tests-encoded", {"part": "train"})
    with pytest.raises(TypeError):  # nor is another vocabulary
        load_encoded(TEXT, Subwords(subwords.model, "en", "fr"), "tests-encoded", {"part": "train"})


@pytest.mark.parametrize("package", ["sacremoses", "sentencepiece"])
def test_a_missing_package_is_named_with_the_way_to_get_it(
    package: str, monkeypatch: pytest.MonkeyPatch, subwords: Subwords
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    message = rf"translation needs {package}: pip install .*\[translation\]'"
    with pytest.raises(DataError, match=message):
        Subwords(subwords.model, "en", "de")
    with pytest.raises(DataError, match=message):
        load_subwords(TEXT, pieces=80)


def test_real_german_comes_back() -> None:
    text = load_multi30k(official("multi30k/raw/train.de.gz").parents[2])
    learned = ParallelText(text.train.sources[:3000], text.train.targets[:3000])
    subwords = Subwords.train(learned, pieces=2000)
    same = [subwords.text(subwords.encode_target(line)) == line for line in learned.targets]
    assert np.mean(same) >= 0.98
    known = [subwords.unknown_share(line) == 0 for line in text.test.sources]
    assert np.mean(known) >= 0.98
