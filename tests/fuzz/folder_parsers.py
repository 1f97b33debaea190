"""Readers of folders with one file damaged: runs and exports to load, weights over processes, the page."""

import atexit
import functools
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from momentum_transformer import load
from momentum_transformer.experiments.runs import Request, run_training
from momentum_transformer.training.distributed import World
from momentum_transformer.training.sharded import load_shards, save_shards
from momentum_transformer.web.training_view import Watch

from .mutations import Mutate, any_bytes, json_lines, json_values, safetensors_header
from .workers import Parser

REQUEST = Request("copy", "linear", "tiny", 0, ("model.depth=1", "model.width=8", "model.heads=2", "train.steps=2"))
HAS_TRANSFORMERS = find_spec("transformers") is not None
ALONE = World(rank=0, size=1, device=torch.device("cpu"))


@functools.cache
def _folders() -> Path:
    """A run and its export, made once a process."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        run_training(REQUEST, folder / "run", resume=False)
        if HAS_TRANSFORMERS:
            from momentum_transformer.hf.export import export_run

            export_run(folder / "run", folder / "export")
    model, optimizer = _model()
    save_shards(folder / "shards", model, optimizer, {"step": 3, "seconds": 0.5}, ALONE)
    return folder


def _model() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return model, optimizer


def _with(original: str, name: str, read: Callable[[Path], Any]) -> Callable[[bytes, Path], None]:
    """A reader of a copy of a folder in which one file is the input."""

    def run(content: bytes, folder: Path) -> None:
        place = folder / original
        if not place.exists():
            shutil.copytree(_folders() / original, place)
        kept = (place / name).read_bytes()
        (place / name).write_bytes(content)
        try:
            read(place)
        finally:
            (place / name).write_bytes(kept)

    return run


def _shards(path: Path) -> None:
    model, optimizer = _model()
    load_shards(path / "3", model, optimizer, ALONE)


def _watch(path: Path) -> None:
    """The page leaves out what it cannot read; what it tells is JSON without infinities."""
    answer = Watch([path]).answer()
    json.loads(answer, parse_constant=lambda name: _refuse(f"{name} is not JSON"))


def _refuse(reason: str) -> None:
    raise AssertionError(reason)


def _parser(name: str, folder: str, file: str, mutate: Mutate, read: Callable[[Path], Any]) -> Parser:
    return Parser(name, [(_folders() / folder / file).read_bytes()], mutate, _with(folder, file, read))


def folder_parsers() -> list[Parser]:
    weights, shard = "checkpoint/best.safetensors", "3/shard-00001-model-00001-of-00001.safetensors"
    exported = [
        ("exported: config.json", "export", "config.json", json_values, load),
        ("exported: weights", "export", "model.safetensors", any_bytes, load),
    ]
    return [
        *(_parser(*one) for one in exported if HAS_TRANSFORMERS),
        _parser("load: config.json", "run", "config.json", json_values, load),
        _parser("load: weights", "run", weights, safetensors_header, load),
        _parser("shards: counters", "shards", "3/progress.json", json_values, _shards),
        _parser("shards: weights", "shards", shard, any_bytes, _shards),
        _parser("page: metrics", "run", "metrics.jsonl", json_lines, _watch),
        _parser("page: config.json", "run", "config.json", json_values, _watch),
    ]
