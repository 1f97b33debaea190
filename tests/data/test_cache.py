"""The cache is built once, is read-only, and repairs itself."""

import multiprocessing
import os
from pathlib import Path

import numpy as np
import pytest

from momentum_transformer.data.array_cache import Arrays, cached, identity_of
from momentum_transformer.data.folder import DataError


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MOMENTUM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Builder:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> Arrays:
        self.calls += 1
        return {"tokens": np.arange(1000, dtype=np.uint8), "labels": np.array([3, 1])}


def entry(root: Path) -> Path:
    (folder,) = (path for path in root.iterdir() if path.is_dir())
    return folder


def test_the_second_call_reads_what_the_first_has_built() -> None:
    build = Builder()
    first, second = (cached("some", {"version": 1}, build) for _ in range(2))
    assert build.calls == 1
    assert isinstance(second["tokens"], np.memmap)
    assert all(np.array_equal(first[name], second[name]) for name in ("tokens", "labels"))
    with pytest.raises(ValueError, match="read-only"):
        second["tokens"][0] = 1


def test_whatever_the_arrays_depend_on_tells_entries_apart() -> None:
    build = Builder()
    for identity in ({"version": 1}, {"version": 2}, {"version": 1, "more": None}):
        cached("some", identity, build)
    assert build.calls == 3


@pytest.mark.parametrize(
    "damage", ["flipped byte", "cut off", "missing array", "missing index", "empty index", "list"]
)
def test_a_damaged_entry_is_built_again(damage: str, root: Path) -> None:
    build = Builder()
    cached("some", {}, build)
    tokens, index = entry(root) / "tokens.npy", entry(root) / "index.json"
    content = tokens.read_bytes()
    match damage:
        case "flipped byte":
            tokens.write_bytes(content[:-7] + bytes([content[-7] ^ 1]) + content[-6:])
        case "cut off":
            tokens.write_bytes(content[:200])
        case "missing array":
            tokens.unlink()
        case "missing index":
            index.unlink()
        case "empty index":
            index.write_text("")
        case "list":
            index.write_text("[1]")
    assert np.array_equal(cached("some", {}, build)["tokens"], np.arange(1000, dtype=np.uint8))
    assert build.calls == 2


def test_a_build_that_fails_leaves_nothing_behind(root: Path) -> None:
    def fail() -> Arrays:
        raise DataError("line 3 is wrong")

    with pytest.raises(DataError, match="line 3 is wrong"):
        cached("some", {}, fail)
    assert [path.name for path in root.iterdir() if path.is_dir()] == []


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MOMENTUM_CACHE", str(tmp_path / "file"))
    with pytest.raises(DataError, match=r"cannot be written .* by MOMENTUM_CACHE"):
        cached("some", {}, Builder())


def test_files_and_folders_are_told_apart_by_their_content(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a").write_text("one")
    before = identity_of(folder, folder / "a")
    (folder / "a").write_text("other")
    after = identity_of(folder, folder / "a")
    assert all(old != new for old, new in zip(before, after, strict=True))


def _build_slowly(log: Path) -> Arrays:
    with log.open("a") as file:
        file.write("built\n")
    return {"tokens": np.zeros(10)}


def _use(log: Path) -> None:
    cached("shared", {}, lambda: _build_slowly(log))


def test_of_two_processes_one_builds(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    log = tmp_path / "log"
    processes = [context.Process(target=_use, args=(log,)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert log.read_text() == "built\n"


def test_a_name_that_is_no_text_is_cached(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"m\xfd.txt")
    path.touch()
    arrays = cached("names", {"files": identity_of(path)}, lambda: {"one": np.arange(3)})
    assert arrays["one"].tolist() == [0, 1, 2]
