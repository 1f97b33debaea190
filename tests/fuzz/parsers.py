"""Every reader of the package, with good inputs to damage."""

import functools
import hashlib
import json
import pickle
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

from momentum_transformer.data import array_cache as cache
from momentum_transformer.data import cifar10, idx, listops, parallel_text, pathfinder, retrieval
from momentum_transformer.data import movie_reviews as text
from momentum_transformer.data.plain_text import read_documents
from momentum_transformer.data.png import write_grey_png
from momentum_transformer.data.subwords import Subwords
from momentum_transformer.data.units import load_units
from momentum_transformer.experiments.configuration import override, paths, to_json
from momentum_transformer.experiments.runs import Request, load_run, make_task
from momentum_transformer.experiments.translation.translation_scoring import read_steps
from momentum_transformer.report.collect import collect
from momentum_transformer.training.checkpoint import load_model, load_optimizer, save_checkpoint
from momentum_transformer.training.counters import counters_of
from momentum_transformer.training.run_directory import RunDirectory
from momentum_transformer.web.messages import parse_draw_request, parse_translate_request, parse_write_request

from ..web.fake import FakeModel, FakeTranslator, FakeWriter, ask, ask_text, ask_translation
from .folder_parsers import folder_parsers
from .mutations import (
    any_bytes,
    json_lines,
    json_values,
    packed,
    pickle_opcodes,
    png_chunks,
    safetensors_header,
    tar,
    tar_headers,
)
from .own_data_parsers import own_data_parsers
from .workers import Parser

REQUEST = Request("copy", "momentum", "tiny", 0, ("model.depth=1", "model.width=8", "model.heads=2"))
METRICS = [
    {"kind": "validation", "step": 0, "loss": 2.5, "accuracy": 0.1, "seconds": 0.0, "cpu_seconds": 0.0},
    {"kind": "train", "step": 3, "loss": 2.4, "learning_rate": 1e-3, "tokens_per_second": 9.5, "seconds": 0.5},
    {"kind": "validation", "step": 3, "loss": 2.0, "accuracy": 0.2, "seconds": 0.5, "cpu_seconds": 0.5},
    {"kind": "end", "step": 3, "seconds": 0.5, "cpu_seconds": 0.5, "best_step": 3, "load": 0.5},
    {"kind": "test", "step": 3, "checkpoint": "best", "loss": 2.0, "accuracy": 0.2},
    {"kind": "throughput", "batch_tokens": 1, "sentences": 50, "source": 9.0, "target": 9.0},
    {"kind": "concluded", "step": 3},
]
PROVENANCE = {"commit": None, "cpu": "x", "cores": 2, "data": {"directory": "/data", "longest": 3, "majority": 0.5}}
RECORDS = np.arange(2 * cifar10.RECORD).astype(np.uint8).reshape(2, -1) % 10
BATCH = {b"labels": [1, 2], b"data": RECORDS[:, 1:], b"filenames": [b"a", b"b"]}
REVIEWS = {
    f"aclImdb/{part}/{label}_{n}.txt": b"good"
    for part in ("train", "test")
    for label, n in (("neg/0", 2), ("pos/1", 9))
}
CIFAR = {f"cifar-10-batches-bin/{name}.bin": RECORDS.tobytes() for name in ("data_batch_1", "test_batch")}
LISTOPS = b"Source\tTarget\n( ( ( [MAX 1 ) 2 ) ] )\t2\n[SM 9 9 [MIN 3 4 ] ]\t1\n"
PAIRS = b"1.0\ta\tb\tb'one \\x41 \\n'\tb\"two\"\n0\tc\td\tb'three'\tb'four'\n"
XML = b'<doc>\n<seg id="1"> One &amp; two &#65; </seg>\n<seg id="2"> Three </seg>\n</doc>\n'
TAGS = b"<url>x</url>\n<title>a</title>\nOne\nTwo <b>\n</doc>\n"
STEPS = json.dumps({"source": "A", "reference": "B", "steps": ["b", "B"]}).encode() + b"\n"
LISTING = b"imgs/0 sample_0.png 0 1 4 2\nimgs/0 sample_1.png 1 0 4 2\n"
UNITS = [
    b'{"units": "bytes"}',
    b'{"units": "characters", "characters": "abc"}',
    b'{"units": "pieces", "merges": [[97, 98], [256, 99], [257, 257]]}',
]
PNG = write_grey_png((np.arange(1024).reshape(32, 32) % 251).astype(np.uint8))


def _file(name: str, read: Callable[[Path], Any]) -> Callable[[bytes, Path], Any]:
    """A reader of one file of this name."""

    def run(content: bytes, folder: Path) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        read(path)

    return run


def _config(path: Path) -> None:
    request, config = load_run(path.parent)
    make_task(request, config, RunDirectory(path.parent), path.parent)


def _settings(content: bytes, _: Path) -> None:
    override(REQUEST.config, [content.decode("utf-8", "replace")])


def _report(name: str) -> Callable[[bytes, Path], Any]:
    """A finished run with one file changed."""

    def run(content: bytes, folder: Path) -> None:
        (folder / "config.json").write_bytes(CONFIG)
        (folder / "provenance.json").write_text(json.dumps(PROVENANCE))
        (folder / "metrics.jsonl").write_bytes(LINES)
        (folder / name).write_bytes(content)
        RunDirectory(folder).forget_metrics_after(
            {"train": 2, "validation": 2}, {"train": 2}
        ) if name == "metrics.jsonl" else None
        (folder / name).write_bytes(content)
        collect([folder])

    return run


CONFIG = json.dumps({"format": 2, **to_json(REQUEST), "config": to_json(REQUEST.config)}).encode()
FLAT = paths(REQUEST.config.model) | {"connection_beta": 0.9, "buckets": 32}  # as versions without groups wrote it
FLAT_CONFIG = json.dumps(
    {"format": 1, **to_json(REQUEST), "config": {**to_json(REQUEST.config), "model": FLAT}}
).encode()
LINES = b"".join(json.dumps(line).encode() + b"\n" for line in METRICS)


@functools.cache
def _trained() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return model, optimizer


def _checkpoint_bytes() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "last.safetensors"
        model, optimizer = _trained()
        save_checkpoint(
            path, model.state_dict(), optimizer, {"step": 3, "seconds": 0.5, "best_score": 2.5, "best_step": 3}
        )
        return path.read_bytes()


def _checkpoint(path: Path) -> None:
    model, optimizer = _trained()
    counters = counters_of(load_model(path, model), path, steps=10)
    load_optimizer(path, optimizer, counters.step)


ARRAYS: cache.Arrays = {"tokens": np.arange(50, dtype=np.uint8), "labels": np.arange(3)}


def _cache(name: str) -> Callable[[bytes, Path], Any]:
    """An entry with one file changed is built again, or is what it was."""

    def run(content: bytes, folder: Path) -> None:
        root = cache.cache_root
        cache.cache_root = lambda: folder
        try:
            entry = cache.cached("entry", {"of": 1}, lambda: ARRAYS)
            (place,) = folder.glob("entry-*/index.json")
            del entry
            place.with_name(name).write_bytes(content)
            found = cache.cached("entry", {"of": 1}, lambda: ARRAYS)
            assert found.keys() == ARRAYS.keys()
            assert all(np.array_equal(found[key], ARRAYS[key]) for key in ARRAYS)
        finally:
            cache.cache_root = root

    return run


def _cache_bytes(name: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        _cache("other")(b"", Path(folder))
        (place,) = Path(folder).glob("entry-*/index.json")
        return place.with_name(name).read_bytes()


def _pictures(picture: bytes | None, listing: bytes | None) -> Callable[[bytes, Path], Any]:
    """A set of two pictures; what is None is the input."""

    def run(content: bytes, folder: Path) -> None:
        for name, given in (
            ("imgs/0/sample_0.png", picture),
            ("imgs/0/sample_1.png", PNG),
            ("metadata/0.npy", listing),
        ):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content if given is None else given)
        pathfinder.read_pathfinder(folder, "set")

    return run


def _vocabulary(path: Path) -> None:
    subwords = Subwords.load(path)
    subwords.text(subwords.encode_source("a b"))


@functools.cache
def _vocabulary_bytes() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        pairs = parallel_text.ParallelText(["a b c", "c b a"], ["d e f", "f e d"])
        Subwords.train(pairs, pieces=14).save(Path(folder) / "subwords")
        return (Path(folder) / "subwords").read_bytes()


def _signed(random: Random, seeds: Any) -> bytes:
    """A damaged model under a right checksum, or a damaged header."""
    header, _, model = random.choice(seeds).partition(b"\n")
    if random.random() < 0.4:
        return json_values(random, [header]) + b"\n" + model
    model = any_bytes(random, [model])
    fields = json.loads(header)
    languages = f"{fields['source_language']}\n{fields['target_language']}\n".encode()
    fields["sha256"] = hashlib.sha256(languages + model).hexdigest()
    return json.dumps(fields).encode() + b"\n" + model


def _units(path: Path) -> None:
    units = load_units(path)
    assert all(len(token) < 10_000 for token in units.tokens)
    units.encode("ab")


def _message(content: bytes, _: Path) -> None:
    if b"text" in content:
        parse_translate_request(content, [FakeTranslator()])
    elif b"prompt" in content:
        parse_write_request(content, [FakeWriter()]).prompt.encode()
    else:
        parse_draw_request(content, [FakeModel()])


def _cifar_folder(path: Path) -> None:
    shutil.copy(path, path.with_name("test_batch" + path.suffix))
    cifar10.load_cifar10(path.parent.parent)


def parsers() -> list[Parser]:
    idx_bytes = b"\x00\x00\x08\x03" + b"".join(n.to_bytes(4, "big") for n in (2, 3, 4)) + bytes(range(24))
    pickles = [pickle.dumps(BATCH, protocol=protocol) for protocol in (2, 4)]
    one_pickle = _file("cifar10/cifar-10-batches-py/data_batch_1", _cifar_folder)
    sparse = bytearray(tar({"cifar-10-batches-bin/data_batch_1.bin": b"x"}))
    sparse[156:157], sparse[483:495] = b"S", b"%011o\0" % 8**10
    sparse[148:156] = b" " * 8
    sparse[148:156] = b"%06o\0 " % sum(sparse[:512])
    archives = [tar(CIFAR), bytes(sparse)]
    messages = [json.dumps(asked).encode() for asked in (ask(given=[1, 2]), ask_translation(), ask_text())]
    checkpoint = _checkpoint_bytes()
    return [
        Parser("config.json", [CONFIG, FLAT_CONFIG], json_values, _file("config.json", _config)),
        Parser("--set", [b"model.depth=4", b"train.betas=[0.9, 0.99]", b"train.clip=none"], any_bytes, _settings),
        Parser("metrics.jsonl", [LINES], json_lines, _report("metrics.jsonl")),
        Parser("provenance.json", [json.dumps(PROVENANCE).encode()], json_values, _report("provenance.json")),
        Parser("checkpoint", [checkpoint], safetensors_header, _file("last.safetensors", _checkpoint)),
        Parser("samples", [STEPS * 3], json_lines, _file("steps.jsonl", read_steps)),
        Parser("cache index", [_cache_bytes("index.json")], json_values, _cache("index.json")),
        Parser("cache array", [_cache_bytes("tokens.npy")], any_bytes, _cache("tokens.npy")),
        Parser("idx", [idx_bytes], any_bytes, _file("images", idx.read_idx)),
        Parser("idx.gz", [idx_bytes], packed(any_bytes), _file("images.gz", idx.read_idx)),
        Parser(
            "CIFAR binary",
            [RECORDS.tobytes()],
            any_bytes,
            _file("cifar10/cifar-10-batches-bin/data_batch_1.bin", _cifar_folder),
        ),
        Parser("CIFAR pickle", pickles, pickle_opcodes, one_pickle),
        Parser(
            "tar", archives, tar_headers, _file("cifar10/cifar.tar", lambda p: cifar10.load_cifar10(p.parent.parent))
        ),
        Parser("tar.gz", [tar(REVIEWS)], packed(tar_headers), _file("aclImdb.tar.gz", text._encode)),
        Parser("PNG", [PNG], png_chunks, _pictures(None, LISTING)),
        Parser("Pathfinder list", [LISTING], any_bytes, _pictures(PNG, None)),
        Parser("ListOps", [LISTOPS], any_bytes, _file("basic_train.tsv", listops.read_listops)),
        Parser("ListOps.gz", [LISTOPS], packed(any_bytes), _file("basic_train.tsv.gz", listops.read_listops)),
        Parser("pairs of papers", [PAIRS], any_bytes, _file("pairs.tsv", lambda p: list(retrieval.read_pairs(p)))),
        Parser("XML", [XML], any_bytes, _file("talks.xml", parallel_text.read_lines)),
        Parser("tagged text", [TAGS], any_bytes, _file("train.tags.en-de.en", parallel_text.read_lines)),
        Parser("text.gz", [XML], packed(any_bytes), _file("text.gz", parallel_text.read_lines)),
        Parser("plain text", [b"some text " * 5], any_bytes, _file("input.txt", lambda p: list(read_documents([p])))),
        Parser("units", UNITS, json_values, _file("units.json", _units)),
        Parser("vocabulary", [_vocabulary_bytes()], _signed, _file("subwords", _vocabulary)),
        Parser("message", messages, json_values, _message),
        *own_data_parsers(),
        *folder_parsers(),
    ]
