"""Runs under way, as the page shows them: what their metrics say, read as it is written, and bounded.

Nothing here writes, or keeps a lock: a run that is watched does not notice. A file that is damaged, or that shrank
because the run was carried on from a checkpoint, is read again from its beginning; lines that are not JSON are passed
over.
"""

import base64
import json
import stat
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..bounded import parse_json, read_bounded
from ..durable import is_held
from ..training.run_directory import OWNER, RunDirectory, RunError, find_runs
from .messages import finite

MOST_RUNS = 12  # those with the latest news
MOST_POINTS = 240  # of a curve; beyond twice as many, every other one is dropped
MOST_SAMPLES = 12  # the latest ones
MOST_CHARACTERS = 600  # of a sample
MOST_PICTURE_BYTES = 60_000
READ_BYTES = 2**20  # of one file at a time
LOOK_SECONDS = 1.0  # between two looks at the files
SEARCH_SECONDS = 5.0  # between two searches for runs
SILENT_SECONDS = 600.0  # without a line, a run is no longer under way, where nothing else tells

Point = tuple[int, float]


class Lines:
    """The JSON lines of a file that grows, each given once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._file: tuple[int, int] | None = None

    def read(self) -> tuple[bool, list[dict[str, Any]]]:
        """Whether the file is another one than before, and the whole lines that are new."""
        try:
            found = self._path.stat()
            if not stat.S_ISREG(found.st_mode):
                return False, []
            with self._path.open("rb") as file:
                is_other = self._file is not None and (
                    self._file != (found.st_dev, found.st_ino) or found.st_size < self._offset
                )
                self._file = found.st_dev, found.st_ino
                self._offset = 0 if is_other else self._offset
                file.seek(self._offset)
                content = file.read(READ_BYTES)
        except OSError:
            return False, []
        end = content.rfind(b"\n") + 1
        if not end and len(content) == READ_BYTES:
            end = len(content)  # no line of ours is as long
        self._offset += end
        return is_other, [line for line in map(_parsed, content[:end].splitlines()) if line is not None]


class Watched:
    """One run: its curves and samples so far."""

    def __init__(self, run: RunDirectory, *, is_shipped: bool) -> None:
        self.run = run
        self._is_shipped = is_shipped
        self._metrics = Lines(run.path / "metrics.jsonl")
        self._samples = Lines(run.path / "samples.jsonl")
        self._forget()
        self._picture: tuple[float, str] | None = None
        try:
            stored = run.read("config.json")
            self.name = f"{stored['experiment']} {stored['model']}"
            parts = [f"{stored['scale']}-seed{stored['seed']}", *stored["settings"]]
            self.detail = ", ".join(map(str, parts))
            self.steps: int | None = int(stored["config"]["train"]["steps"])
        except (RunError, KeyError, TypeError, ValueError, OverflowError):
            self.name, self.detail, self.steps = run.path.name, "its config.json cannot be read", None

    def _forget(self) -> None:
        self.step = 0
        self.is_finished = False
        self.curves: dict[str, list[Point]] = {"train": [], "validation": []}
        self.speed: float | None = None
        self.samples: list[dict[str, Any]] = []

    def look(self) -> None:
        """Read what is new."""
        is_other, lines = self._metrics.read()
        if is_other:
            self._forget()
        for line in lines:
            self._take(line)
        _, samples = self._samples.read()
        for sample in samples:
            step, text = sample.get("step"), sample.get("text")
            if isinstance(step, int) and isinstance(text, str):
                self.samples = [*self.samples, {"step": step, "text": text[:MOST_CHARACTERS]}][-MOST_SAMPLES:]

    def _take(self, line: dict[str, Any]) -> None:
        kind, step, loss = line.get("kind"), line.get("step"), line.get("loss")
        if not isinstance(step, int) or isinstance(step, bool) or not isinstance(kind, str):
            return
        self.is_finished = self.is_finished or kind in ("end", "concluded")
        if kind not in self.curves:
            return
        self.step = max(self.step, step)
        if kind == "train" and isinstance(speed := line.get("tokens_per_second"), int | float):
            self.speed = finite(speed)
        if isinstance(loss, int | float) and finite(loss) is not None:
            curve = self.curves[kind]
            curve.append((step, float(loss)))
            if len(curve) > 2 * MOST_POINTS:
                self.curves[kind] = curve[::2]

    def shown(self, now: float) -> dict[str, Any]:
        owned = None if self.is_finished else is_held(self.run.path / OWNER)
        if owned is None:
            owned = now - _modified(self.run.path / "metrics.jsonl") < SILENT_SECONDS
        state = "finished" if self.is_finished else "under way" if owned else "stopped"
        return {
            "name": self.name,
            "detail": f"comes with the package; {self.detail}" if self._is_shipped else self.detail,
            "state": state,
            "step": self.step,
            "steps": self.steps,
            "tokens_per_second": self.speed,
            **{kind: thinned(curve) for kind, curve in self.curves.items()},
            "samples": self.samples[::-1],
            "picture": self._grid(),
        }

    def _grid(self) -> str | None:
        """Pictures that the run drew, where it did, as the address of an image."""
        path = self.run.path / "samples" / "grid.png"
        try:
            found = path.stat()
            if found.st_size > MOST_PICTURE_BYTES:
                return None
            if self._picture is None or self._picture[0] != found.st_mtime:
                content = base64.b64encode(read_bounded(path, MOST_PICTURE_BYTES)).decode()
                self._picture = found.st_mtime, f"data:image/png;base64,{content}"
        except OSError:
            return None
        return self._picture[1]


class Watch:
    """The runs below some folders. However many viewers ask, the files are looked at once a second."""

    def __init__(self, folders: Sequence[Path], shipped: Path | None = None) -> None:
        self.folders = folders
        self._shipped = shipped
        self._runs: dict[Path, Watched] = {}
        self._lock = threading.Lock()
        self._searched = self._looked = float("-inf")
        self._answer = b""
        self.more = 0  # runs that are not shown

    def answer(self) -> bytes:
        """What the page is told, as JSON."""
        with self._lock:
            if time.monotonic() - self._looked >= LOOK_SECONDS:
                runs, folders = self.runs(), [str(one) for one in self.folders]
                self._answer = json.dumps({"runs": runs, "more": self.more, "folders": folders}).encode()
                self._looked = time.monotonic()
            return self._answer

    def runs(self) -> list[dict[str, Any]]:
        """The runs with the latest news; those under way come first."""
        if time.monotonic() - self._searched >= SEARCH_SECONDS:
            self._search()
            self._searched = time.monotonic()
        now = time.time()
        for watched in self._runs.values():
            watched.look()
        shown = [watched.shown(now) for watched in self._runs.values()]
        return sorted(shown, key=lambda run: run["state"] != "under way")

    def _search(self) -> None:
        found = {run.path: run for folder in self.folders for run in find_runs(folder)}
        latest = sorted(found.values(), key=lambda run: -_modified(run.path / "metrics.jsonl"))
        own = {run.path: False for run in latest}
        shipped = [] if self._shipped is None else list(find_runs(self._shipped))
        every = own | {run.path: True for run in shipped if run.path not in own}
        self.more = max(0, len(every) - MOST_RUNS)
        known = self._runs
        self._runs = {
            path: known.get(path) or Watched(RunDirectory(path), is_shipped=is_shipped)
            for path, is_shipped in list(every.items())[:MOST_RUNS]
        }


def thinned(curve: list[Point]) -> list[Point]:
    """At most `MOST_POINTS` of a curve, evenly spread, the last one among them."""
    step = -(-len(curve) // MOST_POINTS)
    return curve if step <= 1 else curve[(len(curve) - 1) % step :: step]


def _modified(path: Path) -> float:
    """When a file was changed, in seconds since 1970; 0 where there is none."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        found = parse_json(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
