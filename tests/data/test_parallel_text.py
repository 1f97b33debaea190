"""Parallel text: what is read is what is in the files, and what breaks the alignment is named by file and line."""

import gzip
from pathlib import Path

import pytest

from momentum_transformer.data.folder import DataError
from momentum_transformer.data.parallel_text import (
    ParallelText,
    load_iwslt16,
    load_multi30k,
    read_lines,
    read_pair,
)

from .official import official

XML = """<?xml version="1.0" encoding="UTF-8"?>
<mteval><refset setid="x"><doc docid="1" genre="lectures">
<title>A title</title>
<seg id="1"> Q &amp; A, he said. </seg>
<p><seg id="2">Two</seg></p>
</doc></refset></mteval>
"""
TAGGED = """<url>http://www.ted.com/talks/1</url>
<keywords>talks, TED</keywords>
<speaker>A B</speaker>
<talkid>1</talkid>
<title>Title of it</title>
<description>TED Talk Subtitles: a <i>description</i></description>
First sentence.
<3 is a heart.
"""
TAGGED_GERMAN = TAGGED.replace("First sentence.", "Erster Satz.") + '<reviewer href="http://x">C D</reviewer>\n'


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("last", [True, False])
def test_only_line_feeds_end_lines(ending: str, last: bool, tmp_path: Path) -> None:
    lines = ["eins\u2028zwei", "drei\x85\x0b\x0cvier", " fünf  sechs ", "", "sieben"]
    path = write(tmp_path / "a.de", ending.join(lines) + (ending if last else ""))
    assert read_lines(path) == lines


def test_gzip_is_seen_by_content_and_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    content = gzip.compress("\ufeffeins\nzwei\n".encode())
    for name in ("a.de.gz", "a.de"):
        assert read_lines(write(tmp_path / name, content)) == ["eins", "zwei"]


def test_xml_gives_its_segments_and_nothing_else(tmp_path: Path) -> None:
    assert read_lines(write(tmp_path / "a.xml", XML)) == ["Q & A, he said.", "Two"]
    assert read_lines(write(tmp_path / "a.xml.gz", gzip.compress(XML.encode()))) == ["Q & A, he said.", "Two"]
    with pytest.raises(DataError, match=r"a.xml, line 4: <seg> without </seg>"):
        read_lines(write(tmp_path / "a.xml", XML[: XML.index("he said")]))


def test_lines_about_a_talk_are_dropped_from_tagged_text_only(tmp_path: Path) -> None:
    assert read_lines(write(tmp_path / "train.tags.en-de.en", TAGGED)) == ["First sentence.", "<3 is a heart."]
    assert read_lines(write(tmp_path / "plain.en", TAGGED)) == TAGGED.splitlines()


@pytest.mark.parametrize("packed", [True, False])
def test_a_byte_that_is_not_utf8_is_named_by_line(packed: bool, tmp_path: Path) -> None:
    content = b"gut\n" * 16 + "schön\n".encode("latin-1")
    path = write(tmp_path / "train.de", gzip.compress(content) if packed else content)
    with pytest.raises(DataError, match=r"train.de, line 17: not UTF-8 \(byte 0xf6\); convert"):
        read_lines(path)


def test_a_file_that_is_missing_or_cut_off_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no file .*train.de"):
        read_lines(tmp_path / "train.de")
    with pytest.raises(DataError, match=r"is a folder, not a file of text; name a file in it"):
        read_lines(tmp_path)
    with pytest.raises(DataError, match=r"train.de.gz cannot be read: .*get it again"):
        read_lines(write(tmp_path / "train.de.gz", gzip.compress(b"eins\nzwei\n" * 100)[:-12]))


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("a\nb\n", "A\nB\nC\n", r"x.en ends after 2 sentences, \S*x.de has 3, the next in line 3; line n"),
        ("a\nb\nc\n", "A\n", r"x.de ends after 1 sentences, \S*x.en has 3, the next in line 2; line n"),
        ("a\n \t\nc\n", "A\nB\nC\n", r"x.en, line 2: the line is empty; delete this line in both files"),
        ("a\nb\nc\n", "A\nB\n\u00a0\n", r"x.de, line 3: the line is empty"),
        ("", "A\n", r"x.en has no lines"),
        ("a\n", "", r"x.de has no lines"),
    ],
)
def test_what_breaks_the_alignment_is_named(source: str, target: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message) as error:
        read_pair(write(tmp_path / "x.en", source), write(tmp_path / "x.de", target))
    assert "\n" not in str(error.value)


def test_sides_of_different_lengths_are_no_text() -> None:
    with pytest.raises(ValueError, match="2 sources need as many targets, not 1"):
        ParallelText(["a", "b"], ["A"])


def test_the_digest_sees_every_change() -> None:
    texts = [(["a", "b"], ["c", "d"]), (["a"], ["b"]), (["a", "b"], ["c", "e"]), (["a", "b c"], ["", "d"]), ([], [])]
    digests = {ParallelText(sources, targets).digest() for sources, targets in texts}
    assert len(digests) == len(texts)
    assert ParallelText(*texts[0]).digest() in digests


def write_talks(folder: Path, *names: str) -> None:
    for name in names:
        write(folder / f"{name}.en", f"one of {name}\n")
        write(folder / f"{name}.de.gz", gzip.compress(f"eins von {name}\n".encode()))


def test_iwslt_prefers_the_official_training_set(tmp_path: Path) -> None:
    folder = tmp_path / "iwslt16" / "en-de"
    for language, tagged in (("en", TAGGED + "\nlast\n"), ("de", TAGGED_GERMAN + "leer\nletzter\n")):
        write(folder / f"train.tags.en-de.{language}", tagged)
        for name in ("tst2013", "tst2014"):
            write(folder / f"IWSLT16.TED.{name}.en-de.{language}.xml", XML.replace("Two", f"{name} {language}"))
    splits = load_iwslt16(tmp_path)
    assert splits.train == ParallelText(
        ["First sentence.", "<3 is a heart.", "last"], ["Erster Satz.", "<3 is a heart.", "letzter"]
    )
    assert (splits.validation.targets[1], splits.test.sources[1]) == ("tst2013 de", "tst2014 en")
    assert splits.note.endswith("official training set of 3 pairs, 1 pairs with an empty line left out")
    (folder / "train.tags.en-de.de").unlink()
    with pytest.raises(DataError, match="only in one language"):
        load_iwslt16(tmp_path)


def test_iwslt_without_it_says_that_it_trains_on_a_stand_in(tmp_path: Path) -> None:
    folder = tmp_path / "iwslt"
    with pytest.raises(DataError, match=r"IWSLT'16 is not in .*put train.tags.en-de.en"):
        load_iwslt16(tmp_path)
    write_talks(folder, "tst2013")
    with pytest.raises(DataError, match=r"iwslt has no tst2014.en and .de"):
        load_iwslt16(tmp_path)
    write_talks(folder, "tst2014", "dev2010", "tst2010", "tst2011", "tst2012")
    with pytest.raises(DataError, match=r"has no train.tags.en-de.en and .de; put them there .* tst2015$"):
        load_iwslt16(tmp_path)
    write_talks(folder, "tst2015")
    splits = load_iwslt16(tmp_path)
    assert splits.train.sources[-1] == "one of tst2015"
    assert splits.test.targets == ["eins von tst2014"]
    assert "5 pairs of dev2010, tst2010" in splits.note
    assert "stand-in" in splits.note


def test_multi30k_is_found_in_its_folder_or_named_by_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"Multi30k is not in .*put train.en.gz, train.de.gz, val.en.gz"):
        load_multi30k(tmp_path)
    folder = tmp_path / "multi30k"
    write_talks(folder, "train", "val")
    with pytest.raises(DataError, match=r"has no test_2016_flickr.en.gz and no test_2016_flickr.de.gz; put it there"):
        load_multi30k(tmp_path)
    write_talks(folder, "test_2016_flickr")
    assert load_multi30k(tmp_path) == load_multi30k(folder)


def test_the_official_sets_have_their_official_sizes() -> None:
    multi30k = load_multi30k(official("multi30k/raw/train.en.gz").parents[2])
    assert [len(part) for part in (multi30k.train, multi30k.validation, multi30k.test)] == [29000, 1014, 1000]
    assert multi30k.test.targets[0] == "Ein Mann mit einem orangefarbenen Hut, der etwas anstarrt."
    iwslt = load_iwslt16(official("iwslt/tst2013.en.gz").parents[1])
    assert [len(part) for part in (iwslt.validation, iwslt.test)] == [993, 1305]
