"""Sentences and their translations: plain text or gzip, line by line, or the XML and the tagged text of IWSLT.

Line n of one file translates line n of the other; whatever breaks that is an error that names file and line.
"""

import hashlib
import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..bounded import MEGABYTE, UNREADABLE, read_bounded
from .folder import DataError, candidates

MOST_BYTES = 4_096 * MEGABYTE
SEGMENT = re.compile(r"<seg\b")
# lines about a talk between the sentences of train.tags.*; their number differs between languages
TAG = re.compile(r"\s*</?(url|keywords|speaker|talkid|title|description|reviewer|translator|doc|transcript)\b[^<]*>")
MULTI30K = ("train", "val", "test_2016_flickr")
STAND_IN = ("dev2010", "tst2010", "tst2011", "tst2012", "tst2015")
SUFFIXES = ("", ".gz")


@dataclass(frozen=True)
class ParallelText:
    sources: list[str]
    targets: list[str]

    def __post_init__(self) -> None:
        if len(self.sources) != len(self.targets):
            raise ValueError(f"{len(self.sources):,} sources need as many targets, not {len(self.targets):,}")

    def __len__(self) -> int:
        return len(self.sources)

    def digest(self) -> str:
        """What tells one text from another: sha256 of all of it."""
        state = hashlib.sha256()
        for lines in (self.sources, self.targets):
            state.update(f"{len(lines)}\n".encode())
            state.update("\n".join(lines).encode())
        return state.hexdigest()


@dataclass(frozen=True)
class TranslationSplits:
    train: ParallelText
    validation: ParallelText
    test: ParallelText
    note: str  # what a reader of results must know about the data

    def digest(self) -> str:
        """What tells one corpus from another: sha256 of those of its texts."""
        texts = (self.train, self.validation, self.test)
        return hashlib.sha256("\n".join(text.digest() for text in texts).encode()).hexdigest()


def load_multi30k(root: Path) -> TranslationSplits:
    """Multi30k, task 1, English to German: 29,000 captions, `val`, and the test set of 2016."""
    wanted = [f"{name}.{language}" for name in MULTI30K for language in ("en", "de")]
    found: dict[str, Path] = {}
    for folder in candidates(root, ("multi30k/raw", "multi30k/data/task1/raw", "multi30k", "data/task1/raw", "raw")):
        found = {name: path for name in wanted if (path := _first(folder, name)) is not None}
        if len(found) == len(wanted):
            train, validation, test = (read_pair(found[f"{name}.en"], found[f"{name}.de"]) for name in MULTI30K)
            note = "Multi30k task 1, English to German, test set test_2016_flickr"
            return TranslationSplits(train, validation, test, note)
        if found:
            missing = " and no ".join(f"{name}.gz" for name in wanted if name not in found)
            raise DataError(f"{folder} has no {missing}; put it there")
    raise DataError(
        f"Multi30k is not in {root}: put {', '.join(f'{name}.gz' for name in wanted)} (data/task1/raw of "
        f"https://github.com/multi30k/dataset) into {root / 'multi30k'}, or name their folder by --data-dir or "
        "MOMENTUM_DATA"
    )


def load_iwslt16(root: Path) -> TranslationSplits:
    """IWSLT'16, English to German: validation on tst2013, test on tst2014."""
    for folder in candidates(root, ("iwslt16", "iwslt16/en-de", "iwslt", "iwslt/en-de", "en-de")):
        validation, test = _find_talks(folder, "tst2013"), _find_talks(folder, "tst2014")
        if validation is None and test is None:
            continue
        if validation is None or test is None:
            name = "tst2013" if validation is None else "tst2014"
            raise DataError(f"{folder} has no {name}.en and .de (or IWSLT16.TED.{name}.en-de.*.xml); put them there")
        train, note = _iwslt_training(folder)
        return TranslationSplits(train, read_pair(*validation), read_pair(*test), note)
    raise DataError(
        f"IWSLT'16 is not in {root}: put train.tags.en-de.en, train.tags.en-de.de and, for tst2013 and tst2014, "
        f"IWSLT16.TED.tst201*.en-de.*.xml (https://wit3.fbk.eu) into {root / 'iwslt16'}, or name their folder by "
        "--data-dir or MOMENTUM_DATA"
    )


def _iwslt_training(folder: Path) -> tuple[ParallelText, str]:
    """The official training set where it is; else other years' talks, and a note that says so."""
    source, target = (_first(folder, f"train.tags.en-de.{language}") for language in ("en", "de"))
    if source is not None and target is not None:
        pairs, empty = _read_aligned(source, target)
        left_out = f", {len(empty)} pairs with an empty line left out" if empty else ""
        return pairs, f"IWSLT'16 English to German, official training set of {len(pairs):,} pairs{left_out}"
    if source is not None or target is not None:
        raise DataError(f"{folder} has train.tags.en-de only in one language; put the other beside it")
    found = {name: pair for name in STAND_IN if (pair := _find_talks(folder, name)) is not None}
    if len(found) < len(STAND_IN):
        missing = ", ".join(name for name in STAND_IN if name not in found)
        raise DataError(
            f"{folder} has no train.tags.en-de.en and .de; put them there or, as a small stand-in, {missing}"
        )
    parts = [read_pair(*found[name]) for name in STAND_IN]
    pairs = ParallelText([line for p in parts for line in p.sources], [line for p in parts for line in p.targets])
    return pairs, (
        f"trained on {len(pairs):,} pairs of {', '.join(STAND_IN)}, a small stand-in for IWSLT'16's official training "
        "set: not comparable with published numbers"
    )


def _find_talks(folder: Path, name: str) -> tuple[Path, Path] | None:
    """A test set as plain text, or as the official XML."""
    for stem in (f"{name}.{{}}", f"IWSLT16.TED.{name}.en-de.{{}}.xml"):
        source, target = (_first(folder, stem.format(language)) for language in ("en", "de"))
        if source is not None and target is not None:
            return source, target
    return None


def _first(folder: Path, name: str) -> Path | None:
    return next((path for suffix in SUFFIXES if (path := folder / f"{name}{suffix}").is_file()), None)


def read_pair(source: Path, target: Path) -> ParallelText:
    """Two files as one text; each line must have a partner, and none may be empty."""
    pairs, empty = _read_aligned(source, target)
    if empty:
        raise DataError(f"{empty[0]}: the line is empty; delete this line in both files, or fill it in")
    return pairs


def _read_aligned(source: Path, target: Path) -> tuple[ParallelText, list[str]]:
    """All pairs without an empty side, and where there was one."""
    files = [(path, list(_numbered(path))) for path in (source, target)]
    for path, lines in files:
        if not lines:
            raise DataError(f"{path} has no lines; a text needs at least one")
    (short, few), (long, many) = sorted(files, key=lambda file: len(file[1]))
    if len(few) != len(many):
        raise DataError(
            f"{short} ends after {len(few):,} sentences, {long} has {len(many):,}, the next in line "
            f"{many[len(few)][0]}; line n of one file must translate line n of the other: find where they part"
        )
    empty, sources, targets = [], [], []
    for (number, line), (other, translation) in zip(files[0][1], files[1][1], strict=True):
        if not line.strip():
            empty.append(f"{source}, line {number}")
        elif not translation.strip():
            empty.append(f"{target}, line {other}")
        else:
            sources.append(line)
            targets.append(translation)
    return ParallelText(sources, targets), empty


def read_lines(path: Path) -> list[str]:
    """Every sentence of a file. Only a line feed ends a line, so that no character inside a sentence can."""
    return [line for _, line in _numbered(path)]


def _numbered(path: Path) -> Iterator[tuple[int, str]]:
    """Sentences, each with the number of its line in the file."""
    lines = _decode(path).split("\n")
    if not lines[-1]:
        lines.pop()
    numbered = ((number, line.removesuffix("\r")) for number, line in enumerate(lines, start=1))
    if path.name.removesuffix(".gz").endswith(".xml"):
        return _segments(path, numbered)
    if path.name.startswith("train.tags."):
        return ((number, line) for number, line in numbered if not TAG.match(line))
    return numbered


def _segments(path: Path, lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    for number, line in lines:
        if (tag := SEGMENT.search(line)) is None:
            continue
        start, end = line.find(">", tag.end()), line.rfind("</seg>")
        if not 0 <= start < end:
            raise DataError(f"{path}, line {number}: <seg> without </seg>; the file is cut off, or not IWSLT's XML")
        try:
            yield number, html.unescape(line[start + 1 : end]).strip()
        except ValueError:
            raise DataError(f"{path}, line {number}: a character is written as a number that is too long") from None


def _decode(path: Path) -> str:
    try:
        content = read_bounded(path, MOST_BYTES)
    except FileNotFoundError:
        raise DataError(f"there is no file {path}; check the path") from None
    except UNREADABLE as error:
        if path.is_dir():
            raise DataError(f"{path} is a folder, not a file of text; name a file in it") from None
        raise DataError(f"{path} cannot be read: {error}; get it again, or name another one") from None
    try:
        return content.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}, line {number}: not UTF-8 (byte 0x{content[error.start]:02x}); convert the file, for example by "
            "iconv -f latin1 -t utf-8"
        ) from None
