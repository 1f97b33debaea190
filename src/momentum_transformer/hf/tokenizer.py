"""The vocabulary of a text run as a tokenizer of Transformers: the same numbers for the same text."""

from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from ..data.units import BYTES, Characters, Pieces, Units

WORD, SPACE = r"\p{L}\p{N}_", r"\s\x1c-\x1f"  # \w and \s of Python for that library
WORDS = rf" ?[{WORD}]+| ?[^{WORD}{SPACE}]+|[{SPACE}]+(?![^{SPACE}])|[{SPACE}]+"  # as in data.units


def to_tokenizer(units: Units) -> Any:
    """A tokenizer that encodes and decodes as these units do, and refuses the same characters.

    None where two pieces are the same bytes, which no tokenizer there can have.
    """
    if len(set(units.tokens)) < len(units.tokens):
        return None
    tokenizer = _of_characters(units) if isinstance(units, Characters) else _of_bytes(units)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, padding_side="left", clean_up_tokenization_spaces=False)


def _of_characters(units: Characters) -> Tokenizer:
    numbers = {character: number for number, character in enumerate(units.characters)}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token=""))  # not in it: what is unknown is an error
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


def _of_bytes(units: Units) -> Tokenizer:
    letters = _letters()
    tokens = ["".join(letters[byte] for byte in token) for token in units.tokens]
    merges = [(tokens[a], tokens[b]) for a, b in units.merges] if isinstance(units, Pieces) else []
    tokenizer = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _letters() -> list[str]:
    """That library writes a byte as a letter: a visible one as itself, the others in order from number 256 on."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    hidden = iter(sorted(letter for letter in alphabet if ord(letter) >= BYTES))
    return [chr(byte) if chr(byte) in alphabet else next(hidden) for byte in range(BYTES)]
