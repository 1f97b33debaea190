"""Text as numbers: Moses tokenisation, then one vocabulary of subwords (BPE) for both languages.

Numbers 0 to 3 are unknown, padding, start and end; a vocabulary of `pieces` has them among its pieces.
"""

import hashlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from ..bounded import MEGABYTE, UNREADABLE, parse_json, read_bounded
from ..durable import make_folder, replace_file
from .array_cache import Arrays, cached
from .folder import DataError
from .moses import Moses, libraries
from .parallel_text import ParallelText

UNKNOWN, PADDING, START, END = 0, 1, 2, 3
SPECIALS = 4
MOST_BYTES = 64 * MEGABYTE
ENCODING = 1  # to be raised when the same text should be encoded anew
BOUNDARY = "▁"  # how sentencepiece writes the space before a word
RESERVED = "▅"  # sentencepiece learns nothing from a line that holds it


class Subwords:
    """A trained vocabulary: lines of either language to numbers, and numbers to text of the target language."""

    def __init__(self, model: bytes, source_language: str, target_language: str) -> None:
        self.model = model
        self.source_language, self.target_language = source_language, target_language
        self._source_moses, self._target_moses = Moses(source_language), Moses(target_language)
        try:
            if not model:
                raise RuntimeError("it is empty")
            self._pieces = libraries()[1].SentencePieceProcessor(model_proto=model)
        except RuntimeError as error:
            raise DataError(f"not a sentencepiece model ({_first_line(error)}); train the vocabulary again") from None
        specials = tuple(getattr(self._pieces, f"{name}_id")() for name in ("unk", "pad", "bos", "eos"))
        if specials != (UNKNOWN, PADDING, START, END):
            raise DataError(f"unknown, padding, start and end are {specials} in this vocabulary, not (0, 1, 2, 3)")

    @staticmethod
    def train(
        text: ParallelText, *, pieces: int, source_language: str = "en", target_language: str = "de"
    ) -> "Subwords":
        """Joint BPE over both sides of the text; the same text gives the same vocabulary."""
        lines = [
            *Moses(source_language).tokenize_all(text.sources),
            *Moses(target_language).tokenize_all(text.targets),
        ]
        lines = [line.replace(RESERVED, " ").replace(BOUNDARY, " ") for line in lines]
        characters = set().union(*lines, " ")
        if len(characters) == 1:
            raise DataError("the text is empty: a vocabulary needs lines to learn from")
        if pieces < len(characters) + SPECIALS:
            raise DataError(
                f"a vocabulary of {pieces:,} pieces is too small for this text: {len(characters):,} characters and "
                f"{SPECIALS} special pieces need at least {len(characters) + SPECIALS:,}"
            )
        model = io.BytesIO()
        try:
            libraries()[1].SentencePieceTrainer.train(
                sentence_iterator=iter(lines),
                model_writer=model,
                model_type="bpe",
                vocab_size=pieces,
                hard_vocab_limit=False,  # too few pieces are reported below
                character_coverage=1.0,
                byte_fallback=False,
                normalization_rule_name="identity",  # what the text says is what comes out again
                max_sentence_length=max(10, *(len(line.encode()) + 1 for line in lines)),  # none is left out
                num_threads=1,
                unk_id=UNKNOWN,
                pad_id=PADDING,
                bos_id=START,
                eos_id=END,
                minloglevel=2,
            )
        except RuntimeError as error:
            raise DataError(f"sentencepiece cannot learn {pieces:,} pieces: {_first_line(error)}") from None
        subwords = Subwords(model.getvalue(), source_language, target_language)
        if len(subwords) < pieces:
            raise DataError(f"this text has {len(subwords):,} pieces at most; ask for no more, not for {pieces:,}")
        return subwords

    @cached_property
    def digest(self) -> str:
        """What tells one vocabulary from another: sha256 of the languages and the model."""
        return _digest(self.model, self.source_language, self.target_language)

    def __len__(self) -> int:
        return len(self._pieces)

    def encode_source(self, line: str) -> list[int]:
        return self.encode_sources([line])[0]

    def encode_target(self, line: str) -> list[int]:
        """The pieces of a target line, without START and END, which whoever makes a sentence of them adds."""
        return self.encode_targets([line])[0]

    def encode_sources(self, lines: Iterable[str]) -> list[list[int]]:
        return self._pieces.encode(self._source_moses.tokenize_all(lines), num_threads=1)

    def encode_targets(self, lines: Iterable[str]) -> list[list[int]]:
        return self._pieces.encode(self._target_moses.tokenize_all(lines), num_threads=1)

    def tokenize_target(self, line: str) -> str:
        """Moses tokens with spaces between: a reference for `tokens` to be compared with."""
        return self._target_moses.tokenize(line)

    def tokens(self, ids: Sequence[int]) -> str:
        """Moses tokens of the numbers before the first END; special pieces are dropped."""
        ids, size = self.cut(ids), len(self)
        if wrong := [number for number in ids if not 0 <= number < size]:
            raise ValueError(f"{wrong[0]} is not a piece of this vocabulary, which has 0 to {size - 1}")
        return " ".join(self._pieces.decode([number for number in ids if number >= SPECIALS]).split())

    @staticmethod
    def cut(ids: Sequence[int]) -> list[int]:
        """The numbers before the first END."""
        ids = [int(number) for number in ids]
        return ids[: ids.index(END)] if END in ids else ids

    def text(self, ids: Sequence[int]) -> str:
        """Text as people write it."""
        return self._target_moses.detokenize(self.tokens(ids))

    def unknown_share(self, line: str) -> float:
        """The share of a source line's pieces that are unknown; in an unknown script, all but its punctuation.

        A bare space before an unknown word is no piece of its own here.
        """
        tokens = self._source_moses.tokenize(line)
        ids = [number for number in self._pieces.encode(tokens) if self._pieces.id_to_piece(number) != BOUNDARY]
        return ids.count(UNKNOWN) / len(ids) if ids else 0.0

    def save(self, path: Path) -> None:
        """One file: a line of JSON, then the sentencepiece model."""
        header = {
            "source_language": self.source_language,
            "target_language": self.target_language,
            "sha256": self.digest,
        }
        content = json.dumps(header).encode() + b"\n" + self.model
        try:
            make_folder(path.parent)
            replace_file(path, lambda temporary: temporary.write_bytes(content))
        except OSError as error:
            raise DataError(f"the vocabulary {path} cannot be written: {error}") from None

    @staticmethod
    def load(path: Path) -> "Subwords":
        try:
            header, _, model = read_bounded(path, MOST_BYTES).partition(b"\n")
            fields = parse_json(header)
            languages = str(fields["source_language"]), str(fields["target_language"])
            if _digest(model, *languages) != fields["sha256"]:
                raise ValueError("its checksum is wrong")
        except FileNotFoundError:
            raise DataError(f"there is no vocabulary {path}; check the path") from None
        except (*UNREADABLE, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path} is damaged or not a vocabulary ({_first_line(error)})") from None
        return Subwords(model, *languages)


@dataclass(frozen=True)
class Sentences:
    """Encoded sentences in one flat array, which may be memory-mapped."""

    flat: np.ndarray  # int32: every sentence behind the other
    offsets: np.ndarray  # (n + 1,): where each begins, and the end

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)

    def rows(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Tokens (b, n) int64, padded to the longest with PADDING, and lengths (b,)."""
        rows = np.asarray(rows)
        lengths = self.lengths[rows]
        place = np.arange(lengths.max(initial=1))
        real = place < lengths[:, None]
        tokens = np.full(real.shape, PADDING, np.int64)
        tokens[real] = self.flat[(self.offsets[rows][:, None] + place)[real]]
        return tokens, lengths


def encode_text(text: ParallelText, subwords: Subwords) -> tuple[Sentences, Sentences]:
    """Sources and targets as numbers; each target ends with END, sources have no special pieces."""
    sources = subwords.encode_sources(text.sources)
    targets = [[*ids, END] for ids in subwords.encode_targets(text.targets)]
    return _sentences(sources), _sentences(targets)


def load_encoded(
    text: ParallelText, subwords: Subwords, name: str, identity: Mapping[str, Any] | None = None
) -> tuple[Sentences, Sentences]:
    """`encode_text` through the cache, under `name`: an entry depends on the text, the vocabulary and `identity`."""

    def build() -> Arrays:
        source, target = encode_text(text, subwords)
        return {
            "source-tokens": source.flat,
            "source-offsets": source.offsets,
            "target-tokens": target.flat,
            "target-offsets": target.offsets,
        }

    everything = _identity(text) | {"subwords": subwords.digest, "given": dict(identity or {})}
    arrays = cached(name, everything, build)
    source, target = (Sentences(arrays[f"{side}-tokens"], arrays[f"{side}-offsets"]) for side in ("source", "target"))
    return source, target


def load_subwords(
    text: ParallelText, *, pieces: int, source_language: str = "en", target_language: str = "de"
) -> Subwords:
    """`Subwords.train` through the cache."""

    def build() -> Arrays:
        subwords = Subwords.train(
            text, pieces=pieces, source_language=source_language, target_language=target_language
        )
        return {"model": np.frombuffer(subwords.model, np.uint8)}

    identity = _identity(text) | {"pieces": pieces, "languages": [source_language, target_language]}
    model = cached("subwords", identity, build)["model"].tobytes()
    return Subwords(model, source_language, target_language)


def _digest(model: bytes, source_language: str, target_language: str) -> str:
    return hashlib.sha256(f"{source_language}\n{target_language}\n".encode() + model).hexdigest()


def _identity(text: ParallelText) -> dict[str, Any]:
    libraries()  # where one is missing, this says how to get it
    versions = {name: version(name) for name in ("sacremoses", "sentencepiece")}
    return {"encoding": ENCODING, "text": text.digest(), "versions": versions}


def _sentences(lines: list[list[int]]) -> Sentences:
    offsets = np.zeros(len(lines) + 1, np.int64)
    np.cumsum([len(line) for line in lines], out=offsets[1:])
    flat = np.fromiter((number for line in lines for number in line), np.int32, count=int(offsets[-1]))
    return Sentences(flat, offsets)


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
