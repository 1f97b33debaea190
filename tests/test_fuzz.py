"""Readers answer anything with a value or one clear error, in little time and memory."""

import gzip
import io
import json
import os
import pickle
import struct
import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
import pytest

from momentum_transformer.bounded import DEPTH, parse_json, read_bounded
from momentum_transformer.cli import main
from momentum_transformer.data.array_cache import cached
from momentum_transformer.data.cifar10_pickle import PickleError, read_pickle
from momentum_transformer.data.png import SIGNATURE
from momentum_transformer.errors import MOST_CHARACTERS, UserError, one_line

from .fuzz.mutations import tar
from .fuzz.own_data_parsers import bomb
from .fuzz.parsers import CONFIG, LINES, parsers
from .fuzz.workers import MOST_BYTES, Parser, fuzz

PARSERS = {parser.name: parser for parser in parsers()}


@pytest.mark.parametrize("name", PARSERS)
def test_damaged_inputs_are_read_or_refused(name: str) -> None:
    found = fuzz(PARSERS[name], 60, seed=1)
    assert not found.failures
    assert found.cases == 60


@pytest.mark.slow
@pytest.mark.parametrize("name", PARSERS)
def test_many_damaged_inputs_are_read_or_refused(name: str) -> None:
    found = fuzz(PARSERS[name], 20_000, seed=2)
    assert not found.failures


def given(name: str, content: bytes) -> Parser:
    """The parser on this one input."""
    return Parser(name, [content], lambda _, seeds: seeds[0], PARSERS[name].read)


def sparse_tar() -> bytes:
    """One member that claims a terabyte, in GNU's form for files with holes."""
    content = bytearray(tar({"cifar-10-batches-bin/data_batch_1.bin": b"x"}))
    content[156:157], content[483:495] = b"S", b"%011o\0" % (8**11 - 1)
    content[148:156] = b" " * 8
    content[148:156] = b"%06o\0 " % sum(content[:512])
    return bytes(content)


def links_tar() -> bytes:
    """A batch that is a link to itself."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        member = tarfile.TarInfo("data_batch_1.bin")
        member.type, member.linkname = tarfile.SYMTYPE, "data_batch_1.bin"
        archive.addfile(member)
    return buffer.getvalue()


def claiming_tar() -> bytes:
    """A file that nobody asks for, to be passed over, and which claims to go on for years."""
    header = bytearray(tar({"x": b""})[:512])
    header[124:136] = b"\x80" + (10**18).to_bytes(11, "big")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return gzip.compress(bytes(header) + bytes(1_024))


def exported(part: bytes, more: bytes) -> bytes:
    """The configuration of an exported model with one number made larger."""
    config = PARSERS["exported: config.json"].seeds[0] if "exported: config.json" in PARSERS else part
    assert config.count(part) == 1
    return config.replace(part, part + more)


def long_names_tar() -> bytes:
    """Headers that each say: a long name follows."""
    header = bytearray(tar({"x": b""})[:512])
    header[156:157] = b"L"
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) * 5_000


def png(*chunks: tuple[bytes, bytes]) -> bytes:
    parts = (struct.pack(">I", len(b)) + k + b + struct.pack(">I", zlib.crc32(k + b)) for k, b in chunks)
    return SIGNATURE + b"".join(parts)


HEADER = struct.pack(">IIBBBBB", 32, 32, 8, 0, 0, 0, 0)
BOMB = gzip.compress(bytes(2**20), 9) * 150  # 150 kB, which unpack to 150 MB
OFFENDERS = {
    "a pickle that claims 4 GB": ("CIFAR pickle", b"\x80\x02\x96\xff\xff\xff\xff\x00\x00\x00\x00."),
    "a pickle with a far memo": ("CIFAR pickle", b"\x80\x02]r\xff\xff\xff\x1f."),
    "a deep tuple as a key": ("CIFAR pickle", b"\x80\x02}(" + b")" + b"\x85" * 100_000 + b"K\x01u."),
    "a pickle that multiplies its text": (
        "CIFAR pickle",
        b"\x80\x02c_codecs\nencode\nq\x00X\x00\x00\x10\x00"
        + b"a" * 2**20
        + b"\x85q\x01"
        + b"h\x00h\x01R" * 9_000
        + b".",
    ),
    "a tar that claims a terabyte": ("tar", sparse_tar()),
    "a link to itself": ("tar", links_tar()),
    "long names of long names": ("tar", long_names_tar()),
    "a gzip bomb": ("idx.gz", BOMB),
    "a bomb of text": ("text.gz", BOMB),
    "a bomb in an archive": ("tar.gz", gzip.compress(tar({"x": b""})[:512]) + BOMB),
    "a PNG bomb": ("PNG", png((b"IHDR", HEADER), (b"IDAT", zlib.compress(bytes(50_000_000), 9)), (b"IEND", b""))),
    "200,000 chunks": ("PNG", png((b"IHDR", HEADER), *[(b"IDAT", b"")] * 200_000, (b"IEND", b""))),
    "tags without an end": ("XML", b"<seg" * 500_000),
    "a character of many digits": ("XML", b"<seg>&#" + b"9" * 5_000 + b";</seg>"),
    "7 MB of nested lists": ("ListOps", b"[MAX " * 1_000_000 + b"1 " + b"] " * 1_000_000 + b"\t1\n"),
    "one long expression among short ones": ("ListOps", b"[SM " + b"1 " * 4_000 + b"]\t0\n" + b"[SM 1 ]\t1\n" * 4_095),
    "a label of many digits": ("ListOps", b"[MAX 1 ]\t" + b"1" * 5_000 + b"\n"),
    "a row of tabs": ("pairs of papers", b"\t" * 20_000_000),
    "a deep configuration": ("config.json", b'{"a":' * 100_000),
    "a model of 10^8 layers": ("config.json", CONFIG.replace(b'"depth": 1', b'"depth": 100000000')),
    "a model of 100 GB": ("config.json", CONFIG.replace(b'"width": 8', b'"width": 65536')),
    "a number of many digits": ("metrics.jsonl", LINES.replace(b"2.5", b"1" * 5_000)),
    "pieces that double": (
        "units",
        json.dumps({"units": "pieces", "merges": [[n, n] for n in range(255, 330)]}).encode(),
    ),
    "a cache entry of no bytes": ("cache array", b""),
    "a table that unpacks to one line": ("CSV.gz", bomb()),
    "a line of input without an end": ("standard input", b"x" * 3_000_000),
    "an exported model of 10^8 layers": ("exported: config.json", exported(b'"num_hidden_layers": 1', b"00000000")),
    "an exported model of 100 GB": ("exported: config.json", exported(b'"intermediate_size": 32', b"0000000000")),
    "an archive that claims 10^18 bytes": ("tar.gz", claiming_tar()),
}


READ = ("a cache entry of no bytes", "one long expression among short ones")


@pytest.mark.parametrize("name", OFFENDERS)
def test_small_files_cannot_take_much(name: str) -> None:
    parser, content = OFFENDERS[name]
    if parser not in PARSERS:
        pytest.skip("exported models need transformers")
    found = fuzz(given(parser, content), 1, seed=0)
    assert not found.failures
    assert (found.refused, found.accepted) == ((0, 1) if name in READ else (1, 0))
    assert found.largest < MOST_BYTES


def test_the_harness_finds_what_it_looks_for() -> None:
    """A traceback, too much memory, a crash: each is a failure of its case."""

    def read(content: bytes, _: Path) -> None:
        match content:
            case b"raise":
                raise KeyError("a defect")
            case b"memory":
                bytearray(2 * MOST_BYTES)
            case b"crash":
                os.abort()
            case b"refuse":
                raise UserError("no")

    kinds = [b"raise", b"memory", b"crash", b"refuse", b"read"]

    def in_turn(random: Random, seeds: Sequence[bytes]) -> bytes:
        return next(seed for number, seed in enumerate(seeds) if random_of(number) == random.getstate())

    def random_of(number: int) -> object:
        return Random(f"0 probe {number}").getstate()

    found = fuzz(Parser("probe", kinds, in_turn, read), 5, seed=0)
    assert [line.split(": ", 1)[1][:12] for line in found.failures if "KeyError" in line] == ["KeyError('a "]
    assert any("MemoryError" in line for line in found.failures)
    assert any("case 2: the process ended" in line for line in found.failures)
    assert (len(found.failures), found.refused, found.accepted) == (3, 1, 1)


def test_json_is_bounded_in_depth_and_odd_values_are_value_errors() -> None:
    assert parse_json("[" * DEPTH + "]" * DEPTH) is not None
    assert parse_json(b'{"a": "' + b"[" * 500 + b'"}') == {"a": "[" * 500}
    for text in ("[" * (DEPTH + 1) + "]" * (DEPTH + 1), "1" * 5_000, '"\\ud800"', b"\xff", "{", '{"' * 100_000):
        with pytest.raises(ValueError):  # noqa: PT011 (each says something else)
            parse_json(text)


def test_only_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(OSError, match=r"it is not a file"):
            read_bounded(path, 100)
    (tmp_path / "large").write_bytes(bytes(101))
    with pytest.raises(OSError, match="it holds more than 0 MB"):
        read_bounded(tmp_path / "large", 100)


def test_nothing_is_read_of_a_file_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> int:
        raise AssertionError("it was read")

    (tmp_path / "sparse").touch()
    os.truncate(tmp_path / "sparse", 2**34)
    monkeypatch.setattr("momentum_transformer.bounded._Limited.readinto", read)
    with pytest.raises(OSError, match="it holds more than 4,096 MB"):
        read_bounded(tmp_path / "sparse", 2**32)


def test_a_batch_is_what_pickle_reads() -> None:
    data = np.arange(12, dtype=np.uint8).reshape(2, 6)
    for protocol in (2, 3, 4):
        values = {b"labels": [3, 1], b"data": data, b"filenames": [b"a.png", b"b.png"]}
        found = read_pickle(pickle.dumps(values, protocol=protocol))
        assert np.array_equal(found.pop(b"data"), data)
        del values[b"data"]
        assert found == values
    with pytest.raises(PickleError, match="which no CIFAR-10 batch needs"):
        read_pickle(pickle.dumps({1.5}, protocol=4))


def test_a_message_is_one_line_of_bounded_length() -> None:
    assert one_line(UserError("a\nb\x1b[31m")) == "a\\nb\\x1b[31m"
    assert len(one_line(UserError("x" * 10_000))) < 2 * MOST_CHARACTERS
    assert one_line(UserError()) == "UserError"


def test_a_damaged_cache_index_is_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOMENTUM_CACHE", str(tmp_path))
    arrays = {"a": np.arange(3), "b": np.arange(4)}
    cached("entry", {}, lambda: arrays)
    (index,) = tmp_path.glob("entry-*/index.json")
    content = json.loads(index.read_text())
    del content["checksums"]["b"]
    index.write_text(json.dumps(content))
    assert cached("entry", {}, lambda: arrays).keys() == arrays.keys()


def test_an_impossible_model_is_one_line_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    for setting, reason in (
        ("model.depth=100000000", "0 to 1,000"),
        ("model.width=65536", "GB for its weights alone"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["train", "copy", "--model", "momentum", "--set", setting, "--set", "model.feedforward=1048576"])
        assert ended.value.code == 2
        out = capsys.readouterr().err
        assert reason in out
        assert out.count("\n") == 1


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("train.batch_size=99999999999", "train.batch_size must be at most 1,048,576"),
        ("train.accumulate=1000000000000", "each needs a row"),
        ("train.weight_decay=-1", "0 or more, not -1"),
        ("data.length=0", "8 or more"),
    ],
)
def test_an_impossible_run_is_one_line(
    setting: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["train", "copy", "--scale", "tiny", "--set", setting, "--out", str(tmp_path / "run")])
    assert ended.value.code == 2
    out = capsys.readouterr().err
    assert reason in out
    assert out.count("\n") == 1


def test_pictures_are_named_once() -> None:
    found = fuzz(given("Pathfinder list", b"imgs/0 sample_0.png 0 1\n" * 2), 1, seed=0)
    assert (found.refused, found.failures) == (1, [])
