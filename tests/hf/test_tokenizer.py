"""The vocabulary of a text run is a tokenizer in Transformers: the same numbers, and the same text back."""

import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'momentum-transformer[hf]'")

from tokenizers import Regex
from tokenizers.pre_tokenizers import Split
from transformers import AutoTokenizer

from momentum_transformer.data import units
from momentum_transformer.data.units import Bytes, Characters, Pieces, Units
from momentum_transformer.hf import tokenizer
from momentum_transformer.hf.tokenizer import to_tokenizer

TEXT = " The  wörld\r\n\n\t's 1²½ _a\x00b <s>[UNK]</s> 日本語 क्षि a\x1cb, aaaaaaaaaaaaaa the theme of them: an end 🙂 "
UNITS: dict[str, Units] = {
    "bytes": Bytes(),
    "characters": Characters.of([TEXT]),
    "pieces": Pieces.learn([TEXT * 3], 300),
}


@pytest.mark.parametrize("name", UNITS)
def test_text_has_the_same_numbers_and_comes_back(name: str, tmp_path: Path) -> None:
    to_tokenizer(UNITS[name]).save_pretrained(tmp_path)
    loaded: Any = AutoTokenizer.from_pretrained(tmp_path)
    for text in (TEXT, TEXT.strip(), TEXT[5:], "the", " ", ""):
        numbers = loaded.encode(text)
        assert numbers == UNITS[name].encode(text).tolist()
        assert loaded.decode(numbers) == text
    assert len(loaded) == len(UNITS[name].tokens)


@pytest.mark.slow
def test_words_end_where_ours_end_at_every_character() -> None:
    split = Split(Regex(tokenizer.WORDS), "isolated")
    known = (chr(i) for i in range(sys.maxunicode) if unicodedata.category(chr(i)) not in ("Cn", "Cs"))
    texts = (f"a{character}! {character}{character} " for character in known)
    odd = [text for text in texts if [word for word, _ in split.pre_tokenize_str(text)] != units.WORDS.findall(text)]
    assert len(odd) < 100, odd[:9]  # letters of a Unicode that is newer in Python than in that library


def test_a_character_that_the_text_did_not_have_is_refused() -> None:
    with pytest.raises(Exception, match="Missing"):
        to_tokenizer(UNITS["characters"]).encode("Ω")


def test_pieces_of_the_same_bytes_are_no_tokenizer() -> None:
    twice = Pieces([(97, 98), (98, 99), (256, 99), (97, 257)])
    assert twice.tokens[-1] == twice.tokens[-2] == b"abc"
    assert to_tokenizer(twice) is None
