"""What a text is cut into: bytes, characters, or pieces (byte-level BPE). Each knows its tokens as bytes.

A vocabulary is plain JSON, so that a run can keep it.
"""

import hashlib
import heapq
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..bounded import MEGABYTE, UNREADABLE, parse_json, read_bounded
from .folder import DataError

BYTES = 256
MOST_BYTES = 64 * MEGABYTE  # of a vocabulary
LONGEST_PIECE = 4_096  # bytes
WORDS = re.compile(r" ?\w+| ?[^\w\s]+|\s+(?!\S)|\s+")  # what pieces never reach across: a word has its space before it
LEARNED_FROM = 2**24  # characters of text that pieces are learned from


class Units(Protocol):
    """Text to numbers and back, without loss."""

    @property
    def tokens(self) -> list[bytes]:
        """What each number stands for, in UTF-8."""
        ...

    def encode(self, text: str) -> np.ndarray: ...

    def described(self) -> dict[str, Any]:
        """The units as JSON, which `load_units` reads."""
        ...


class Bytes:
    """UTF-8 as it is: knows every text."""

    tokens = [bytes([i]) for i in range(BYTES)]  # noqa: RUF012 (never changed)

    def encode(self, text: str) -> np.ndarray:
        return np.frombuffer(text.encode(), np.uint8)

    def described(self) -> dict[str, Any]:
        return {"units": "bytes"}


class Characters:
    """The characters that the text has, in the order of Unicode."""

    def __init__(self, characters: str) -> None:
        self.characters = characters

    @staticmethod
    def of(documents: Iterable[str]) -> "Characters":
        return Characters("".join(sorted(set().union(*documents))))

    @cached_property
    def tokens(self) -> list[bytes]:
        return [character.encode() for character in self.characters]

    def encode(self, text: str) -> np.ndarray:
        points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        known = np.frombuffer(self.characters.encode("utf-32-le"), np.uint32)
        numbers = np.searchsorted(known, points).clip(max=len(known) - 1)
        unknown = np.flatnonzero(known[numbers] != points)
        if len(unknown):
            first = int(unknown[0])
            raise DataError(
                f"{text[first]!r} (character {first + 1:,}) is not in the vocabulary, the {len(known)} characters of "
                "the training text; leave it out, or train with data.units=bytes"
            )
        return numbers.astype(np.uint16 if len(known) <= 2**16 else np.int32)

    def described(self) -> dict[str, Any]:
        return {"units": "characters", "characters": self.characters}


class Pieces:
    """Bytes, and frequent neighbours joined again and again (byte-level BPE): knows every text, too."""

    def __init__(self, merges: Sequence[Sequence[int]]) -> None:
        self.merges = [(int(a), int(b)) for a, b in merges]
        self._ranks = {pair: i for i, pair in enumerate(self.merges)}
        self._known: dict[str, list[int]] = {}

    @staticmethod
    def learn(documents: Iterable[str], pieces: int) -> "Pieces":
        """Learn so many pieces, the 256 bytes among them. The same text gives the same pieces."""
        counts: Counter[str] = Counter()
        left = LEARNED_FROM
        for document in documents:
            counts.update(WORDS.findall(document[:left]))
            left -= len(document)
            if left <= 0:
                break
        merges = _merges(sorted(counts.items()), pieces - BYTES)
        if len(merges) < pieces - BYTES:
            raise DataError(
                f"the training text has only {BYTES + len(merges):,} pieces that come more than once, not "
                f"{pieces:,}; set data.pieces to that or less"
            )
        return Pieces(merges)

    @cached_property
    def tokens(self) -> list[bytes]:
        found = [bytes([i]) for i in range(BYTES)]
        for a, b in self.merges:
            found.append(found[a] + found[b])
        return found

    def encode(self, text: str) -> np.ndarray:
        numbers: list[int] = []
        for word in WORDS.findall(text):
            numbers += self._word(word)
        return np.array(numbers, np.uint16)

    def described(self) -> dict[str, Any]:
        return {"units": "pieces", "merges": self.merges}

    def _word(self, word: str) -> list[int]:
        """The pairs that were learned first are joined first."""
        known = self._known.get(word)
        if known is not None:
            return known
        numbers = list(word.encode())
        while len(numbers) > 1:
            pair = min(pairwise(numbers), key=lambda p: self._ranks.get(p, len(self._ranks)))
            if pair not in self._ranks:
                break
            numbers = _joined(numbers, pair, BYTES + self._ranks[pair])
        self._known[word] = numbers
        return numbers


def _merges(words: list[tuple[str, int]], count: int) -> list[tuple[int, int]]:
    """The most frequent pair of neighbours, again and again; of equally frequent ones the lower numbers."""
    spelled = [list(word.encode()) for word, _ in words]
    times = [many for _, many in words]
    frequency: Counter[tuple[int, int]] = Counter()
    places: dict[tuple[int, int], set[int]] = {}
    for i, numbers in enumerate(spelled):
        for pair in pairwise(numbers):
            frequency[pair] += times[i]
            places.setdefault(pair, set()).add(i)
    waiting = [(-many, pair) for pair, many in frequency.items()]
    heapq.heapify(waiting)
    merges: list[tuple[int, int]] = []
    while waiting and len(merges) < count:
        many, pair = heapq.heappop(waiting)
        if -many != frequency[pair]:  # an entry from before its count changed
            continue
        if -many < 2:
            break
        made, changed = BYTES + len(merges), set()
        merges.append(pair)
        for i in places.pop(pair):
            before, after = spelled[i], _joined(spelled[i], pair, made)
            for old in pairwise(before):
                frequency[old] -= times[i]
                changed.add(old)
            for new in pairwise(after):
                frequency[new] += times[i]
                places.setdefault(new, set()).add(i)
                changed.add(new)
            spelled[i] = after
        for other in changed:
            heapq.heappush(waiting, (-frequency[other], other))
    return merges


def _joined(numbers: list[int], pair: tuple[int, int], made: int) -> list[int]:
    found, i = [], 0
    while i < len(numbers):
        if i + 1 < len(numbers) and (numbers[i], numbers[i + 1]) == pair:
            found.append(made)
            i += 2
        else:
            found.append(numbers[i])
            i += 1
    return found


def digest_of(units: Units) -> str:
    return hashlib.sha256(json.dumps(units.described()).encode()).hexdigest()


def save_units(units: Units, path: Path) -> None:
    path.write_text(json.dumps(units.described(), ensure_ascii=False) + "\n", encoding="utf-8")


def _checked_characters(given: Any) -> str:
    if not isinstance(given, str) or not given or list(given) != sorted(set(given)):
        raise ValueError("its characters are not in order")
    return given


def _checked_merges(given: Any) -> list[tuple[int, int]]:
    """Pairs of earlier pieces; a piece that is made of the last one again and again would soon fill the memory."""
    lengths = [1] * BYTES
    for pair in given:
        if (
            not isinstance(pair, list)
            or len(pair) != 2
            or not all(type(i) is int and 0 <= i < len(lengths) for i in pair)
        ):
            raise ValueError("its merges are no pairs of earlier pieces")
        lengths.append(lengths[pair[0]] + lengths[pair[1]])
        if lengths[-1] > LONGEST_PIECE:
            raise ValueError(f"it has a piece of more than {LONGEST_PIECE:,} bytes")
    return [(a, b) for a, b in given]


def load_units(path: Path) -> Units:
    """The vocabulary that a run has kept."""
    try:
        stored = parse_json(read_bounded(path, MOST_BYTES))
        match stored["units"]:
            case "characters":
                return Characters(_checked_characters(stored["characters"]))
            case "pieces":
                return Pieces(_checked_merges(stored["merges"]))
            case "bytes":
                return Bytes()
    except (*UNREADABLE, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} cannot be read ({error}); it is the vocabulary of the run: train again") from None
    raise DataError(f"{path} is no vocabulary that this version knows: units are {stored['units']!r}")
