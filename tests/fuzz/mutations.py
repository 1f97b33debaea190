"""Damaged and malicious files made from good ones: any bytes, and forms that keep what a parser checks first."""

import copy
import gzip
import io
import json
import struct
import tarfile
import zlib
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

Mutate = Callable[[Random, Sequence[bytes]], bytes]

NUMBERS = (
    b"\x00" * 4,
    b"\xff" * 4,
    b"\x7f\xff\xff\xff",
    b"\xff" * 8,
    b"\x00\x00\x00\x80",
    b"9" * 5000,
    b"-1",
    b"1e999",
)
TEXTS = ("", "x", "\ud800", "\x00", "../../x", "é" * 50, "9" * 5000, "NaN", "[" * 500)
VALUES: tuple[Any, ...] = (None, True, False, 0, -1, 1, 10**8, 10**20, 0.5, -1e308, float("nan"), float("inf"), [], {})
VALUES += (["a"], [[]], {"a": 1}, [1, 2], *TEXTS)


def any_bytes(random: Random, seeds: Sequence[bytes]) -> bytes:
    """One to four damages of a kind that disks, networks and people make."""
    content = bytearray(random.choice(seeds))
    for _ in range(random.randint(1, 4)):
        start = random.randrange(len(content) + 1)
        end = min(len(content), start + random.choice((1, 2, 4, 8, 64, 1024)))
        match random.randrange(8):
            case 0:
                content[start:end] = random.randbytes(end - start)
            case 1:
                del content[start:end]
            case 2:
                del content[start:]
            case 3:
                content[start:start] = content[start:end] * random.choice((1, 2, 50))
            case 4:
                content[start:start] = random.choice(NUMBERS)
            case 5:
                number = random.choice(NUMBERS)
                content[start : start + len(number)] = number
            case 6:
                other = random.choice(seeds)
                content[start:] = other[random.randrange(len(other) + 1) :]
            case _ if content:
                content[start % len(content)] ^= 1 << random.randrange(8)
    return bytes(content)


def json_values(random: Random, seeds: Sequence[bytes]) -> bytes:
    """Values of other types, missing and strange keys; one time in four any damage of the text."""
    if random.random() < 0.25:
        return any_bytes(random, seeds)
    whole = json.loads(random.choice(seeds))
    try:
        for _ in range(random.randint(1, 3)):
            whole = _changed(random, whole)
        return json.dumps(whole, ensure_ascii=random.random() < 0.9).encode(errors="surrogatepass")
    except RecursionError:  # deeper than Python writes
        return b"[" * 2_000 + b"]" * 2_000


def json_lines(random: Random, seeds: Sequence[bytes]) -> bytes:
    """`json_values` in one line of a file."""
    lines = random.choice(seeds).split(b"\n")
    number = random.randrange(max(1, len(lines) - 1))
    lines[number] = json_values(random, [lines[number]])
    return b"\n".join(lines)


def _changed(random: Random, value: Any) -> Any:
    """The value with something in it replaced, removed, renamed or doubled."""
    if not isinstance(value, dict | list) or not value or random.random() < 0.1:
        return copy.deepcopy(random.choice(VALUES))
    key = random.choice(list(value) if isinstance(value, dict) else range(len(value)))
    match random.randrange(6):
        case 0:
            del value[key]
        case 1 if isinstance(value, dict):
            value[random.choice((str(key)[:-1], *TEXTS))] = value.pop(key)
        case 2:
            deep: Any = value[key]
            for _ in range(random.choice((2, 50, 400))):
                deep = [deep] if random.random() < 0.5 else {"a": deep}
            value[key] = deep
        case _:
            value[key] = _changed(random, value[key])
    return value


def packed(mutate: Mutate, bombs: bool = True) -> Mutate:
    """Under gzip: damaged inside, outside, or a little file that unpacks to much."""
    bomb = gzip.compress(bytes(2**20), 9)

    def mutated(random: Random, seeds: Sequence[bytes]) -> bytes:
        match random.randrange(8):
            case 0 | 1:
                return any_bytes(random, [gzip.compress(seed, 1) for seed in seeds])
            case 2 if bombs and random.random() < 0.02:  # members of gzip follow each other
                return gzip.compress(random.choice(seeds), 1) + bomb * random.randint(60, 150)
        return gzip.compress(mutate(random, seeds), 1)

    return mutated


def tar(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


FIELDS = {0: 100, 100: 8, 124: 12, 156: 1, 157: 100, 257: 8, 345: 155, 386: 96, 482: 1, 483: 12}  # of a tar header
TYPES = b"0125LKxgS\x007V"


def tar_headers(random: Random, seeds: Sequence[bytes]) -> bytes:
    """A field of a header changed and its checksum made right; one time in three any damage."""
    if random.random() < 0.33:
        return any_bytes(random, seeds)
    content = bytearray(random.choice(seeds))
    for _ in range(random.randint(1, 3)):
        start = 512 * random.randrange(len(content) // 512)
        place, length = random.choice(list(FIELDS.items()))
        new = random.choice((random.randbytes(length), b"7" * length, b"\x80" + b"\xff" * length, b"0" * length))
        if place == 156:
            new = bytes([random.choice(TYPES)])
        content[start + place : start + place + length] = new[:length].ljust(length, b"\0")
        content[start + 148 : start + 156] = b" " * 8
        content[start + 148 : start + 156] = b"%06o\0 " % sum(content[start : start + 512])
        if random.random() < 0.1:  # the same header many times: long names of long names
            content[start:start] = content[start : start + 512] * random.choice((10, 2000))
    return bytes(content)


def png_chunks(random: Random, seeds: Sequence[bytes]) -> bytes:
    """Chunks changed, doubled, emptied, with the right checksums; one time in four any damage."""
    if random.random() < 0.25:
        return any_bytes(random, seeds)
    content, chunks, place = random.choice(seeds), [], 8
    while place < len(content):
        (length,) = struct.unpack_from(">I", content, place)
        chunks.append((content[place + 4 : place + 8], content[place + 8 : place + 8 + length]))
        place += 12 + length
    number = random.randrange(len(chunks))
    kind, body = chunks[number]
    match random.randrange(6):
        case 0:
            chunks[number] = kind, any_bytes(random, [body])
        case 1:
            chunks[number:number] = [chunks[number]] * random.choice((1, 3, 5000))
        case 2:
            del chunks[number]
        case 3:
            chunks[1] = b"IDAT", zlib.compress(bytes(random.choice((0, 1055, 1057, 10**7))))
        case 4:
            chunks[1] = b"IDAT", zlib.compress(any_bytes(random, [zlib.decompress(chunks[1][1])]))
        case _:
            chunks[0] = (
                b"IHDR",
                struct.pack(">IIBBBBB", *(random.choice((0, 1, 8, 32, 2**31)) % 256 for _ in range(7))),
            )
    parts = (struct.pack(">I", len(b)) + k + b + struct.pack(">I", zlib.crc32(k + b)) for k, b in chunks)
    return content[:8] + b"".join(parts)


# protocol 2 and 4: huge claims, deep values, memo, calls
OPCODES = (
    *(b"B\xff\xff\xff\x7f", b"\x8e" + b"\xff" * 7 + b"\x00", b"\x96" + b"\xff" * 4 + bytes(4), b"r\xff\xff\xff\x1f"),
    *(b"j\xff\xff\xff\xff", b"h\x00", b"2", b"0", b"(", b"t", b"l", b"d", b"\x85", b"\x86", b"\x85" * 3000, b"]" * 50),
    *(
        b"R",
        b"b",
        b"o",
        b"i\n",
        b"cos\nsystem\n",
        b"c_codecs\nencode\n",
        b"cnumpy\nndarray\n",
        b"\x8b\xff\xff\xff\x7f",
    ),
    *(
        b"I" + b"9" * 5000 + b"\n",
        b"V\\ud800\n",
        b"S'\\q'\n",
        b"G\x7f\xf0\0\0\0\0\0\0",
        b"\x81",
        b"\x92",
        b"Q",
        b"P1\n",
        b".",
    ),
)


def pickle_opcodes(random: Random, seeds: Sequence[bytes]) -> bytes:
    if random.random() < 0.5:
        return any_bytes(random, seeds)
    content = bytearray(random.choice(seeds))
    for _ in range(random.randint(1, 4)):
        place = random.choice((2, len(content) - 1, random.randrange(len(content))))
        content[place:place] = random.choice(OPCODES)
    return bytes(content)


def safetensors_header(random: Random, seeds: Sequence[bytes]) -> bytes:
    """The header changed as JSON, with the right length; the counters in it, too."""
    if random.random() < 0.25:
        return any_bytes(random, seeds)
    content = random.choice(seeds)
    (length,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8 : 8 + length])
    if random.random() < 0.5:
        counters = header["__metadata__"]["progress"].encode()
        header["__metadata__"]["progress"] = json_values(random, [counters]).decode(errors="replace")
        text = json.dumps(header).encode()
    else:
        text = json_values(random, [json.dumps(header).encode()])
    return struct.pack("<Q", len(text)) + text + content[8 + length :]
