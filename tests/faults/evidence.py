"""What a run directory holds, without times: the same for a run that never stopped and one that was carried on."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from momentum_transformer.durable import WRITING
from momentum_transformer.training.checkpoint import CheckpointError, read_checkpoint
from momentum_transformer.training.run_directory import RunDirectory, RunError

TIMES = ("seconds", "cpu_seconds", "tokens_per_second", "load", "logged_seconds")


def without_times(line: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if name not in TIMES}


def tensors(path: Path) -> dict[str, Any]:
    """A checkpoint: a digest of every tensor, and the counters."""
    found, progress = read_checkpoint(path)
    digests = {
        name: [str(tensor.dtype), list(tensor.shape), hashlib.sha256(tensor.numpy().tobytes()).hexdigest()]
        for name, tensor in found.items()
    }
    return {"tensors": digests, "progress": without_times(progress)}


def leftovers(folder: Path) -> list[str]:
    """Temporary files that nobody removed."""
    return sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.name.endswith(WRITING) or path.name.startswith(".tmp")
    )


def evidence(path: Path) -> dict[str, Any]:
    """Everything of a finished run that must not depend on what happened to it."""
    run = RunDirectory(path)
    files = sorted(file for file in path.rglob("*") if file.is_file() and "tensorboard" not in file.parts)
    kept = {
        str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
        if file.name not in ("owner.lock", "provenance.json", "metrics.jsonl") and file.suffix != ".safetensors"
    }
    return {
        "last": tensors(run.last),
        "best": tensors(run.best),
        "metrics": [without_times(line) for line in run.metrics() if line["kind"] != "throughput"],
        "files": kept,
        "provenance": (path / "provenance.json").is_file(),
        "left over": leftovers(path),
    }


def files(folder: Path) -> dict[str, str]:
    """Every file below a folder and its digest."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix != ".lock"
    }


def reached(path: Path) -> int:
    """The step of the last checkpoint, -1 where there is none; raises where it cannot be read."""
    run = RunDirectory(path)
    return int(read_checkpoint(run.last)[1]["step"]) if run.last.exists() else -1


def lost(path: Path, before: int, reference: dict[str, Any]) -> str:
    """What a fault has taken from a run that had reached step `before`; an empty string where nothing is missing."""
    run = RunDirectory(path)
    try:
        step = reached(path)
        if step < before:
            return f"the checkpoint went from step {before} back to {step}"
        wanted = [x for x in reference["metrics"] if x["kind"] in ("train", "validation") and x["step"] <= step]
        found = [without_times(line) for line in run.metrics()]
        if [line for line in found if line in wanted] != wanted:
            return f"metrics up to step {step} are missing"
        if step >= 0 and not run.exists():
            return "there is a checkpoint without config.json"
    except (CheckpointError, RunError, json.JSONDecodeError) as error:
        return f"unreadable: {error}"
    return ""


def lose_power(log: Path) -> None:
    """Take back what had not been synced when the process died, by the log of its file operations."""
    sizes: dict[str, int] = {}
    synced: dict[str, int] = {}  # of files that have changed since: the size that the disk knows
    for line in log.read_text().splitlines():
        what, path, other, count = line.split("\t")
        if what == "open":
            if int(other) < sizes.get(path, 0):
                synced[path] = 0  # it was emptied
            sizes[path] = int(other)
        elif what == "write":
            synced.setdefault(path, sizes.get(path, 0))
            sizes[path] = sizes.get(path, 0) + int(count)
        elif what == "fsync":
            synced.pop(path, None)
        elif what == "rename":
            for known in (sizes, synced):
                known.pop(other, None)
                if path in known:
                    known[other] = known.pop(path)
    for path, size in synced.items():
        if Path(path).is_file():
            os.truncate(path, min(size, Path(path).stat().st_size))
