"""A run goes on with the data that it began with, and with no other, whatever it reads."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from momentum_transformer.data.png import write_grey_png
from momentum_transformer.experiments import EXPERIMENTS
from momentum_transformer.experiments.origin import has_digest, refuse_other_data
from momentum_transformer.experiments.runs import Request, make_task
from momentum_transformer.training.run_directory import RunDirectory, RunError

from ..data.small_sets import write_cifar10, write_pairs
from .test_own_data import write_pictures, write_table
from .toy_language import write_pair


class Case(NamedTuple):
    """Small data of an experiment, and how one file of it changes, which keeps its size."""

    experiment: str
    settings: tuple[str, ...]
    file: Path
    changed: Callable[[bytes], bytes]


def official_pictures(folder: Path) -> Case:
    write_cifar10(folder / "cifar10" / "cifar-10-batches-bin", train=40)
    file = folder / "cifar10" / "cifar-10-batches-bin" / "data_batch_1.bin"
    return Case("cifar10", (), file, lambda content: content[:-1] + bytes([content[-1] ^ 1]))


def own_pictures(folder: Path) -> Case:
    source = write_pictures(folder / "pictures")
    other = write_grey_png(np.full((8, 8), 5, np.uint8))
    return Case("images", (f"data.source={source}",), source / "07.png", lambda _: other)


def table(folder: Path) -> Case:
    source = write_table(folder / "t.csv")
    return Case("table", (f"data.source={source}",), source, lambda content: content.replace(b"er 7,", b"er 8,"))


def papers(folder: Path) -> Case:
    write_pairs(folder / "aan")
    file = folder / "aan" / "new_aan_pairs.train.tsv"
    return Case("lra-retrieval", (), file, lambda content: content.replace(b"paper 3 ", b"paper 4 ", 1))


def corpus(folder: Path) -> Case:
    source, target = write_pair(folder, 60)
    settings = (f"data.source={source}", f"data.target={target}", "data.pieces=100")
    return Case("translation", settings, source, lambda content: content.replace(b" .\n", b" !\n", 1))


@pytest.mark.parametrize("make", [official_pictures, own_pictures, table, papers, corpus])
def test_data_that_has_changed_is_refused(
    make: Callable[[Path], Case], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOMENTUM_CACHE", str(tmp_path / "cache"))
    experiment, settings, file, changed = make(tmp_path)
    request = Request(experiment, EXPERIMENTS[experiment].models[0], "tiny", 0, settings)
    run = RunDirectory(tmp_path / "run")
    run.path.mkdir()

    def origin() -> dict[str, Any]:
        return make_task(request, request.config, RunDirectory(tmp_path / "new"), tmp_path).prepare()

    before, content = origin(), file.read_bytes()
    run.write("provenance.json", {"data": before})
    assert has_digest(run) == (experiment != "translation")
    file.write_bytes(changed(content))
    assert file.read_bytes() != content
    after = origin()
    with pytest.raises(RunError, match=r"has changed since the run began: its (sha256|corpus) is .*; bring back"):
        refuse_other_data(run, after)
    without = before.keys() - {"sha256", "corpus", "vocabulary"}
    run.write("provenance.json", {"data": {name: before[name] for name in without}})
    refuse_other_data(run, after)  # an older version noted no digest
    run.write("provenance.json", {"data": before})
    file.write_bytes(content)  # at another time, which does not matter
    refuse_other_data(run, origin())
