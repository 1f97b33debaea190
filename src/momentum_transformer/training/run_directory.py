"""A run directory: everything a run leaves behind, and all that evaluating, resuming and reporting need.

config.json       what was asked for
provenance.json   which code, versions, machine and command line answered
metrics.jsonl     one line per log or evaluation
checkpoint/       last.safetensors, best.safetensors; of weights over processes, last/<step>/ until the end
samples.jsonl     what the model writes at each evaluation, where it writes
samples/          what the best model draws, where it draws
owner.lock        held by the process that writes here
failure.txt       why the last attempt failed, if it did
"""

import json
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from ..bounded import UNREADABLE, parse_json, read_tail
from ..durable import WRITING, HeldError, hold, is_at, make_folder, replace_file, sync
from ..errors import UserError, one_line
from .provenance import provenance
from .records import LONGEST_LINE, read_metrics, read_object, read_samples

FORMAT = 2  # of a run; in 1, config.json had the settings of all kinds of model side by side
METRICS, SAMPLES, OWNER = "metrics.jsonl", "samples.jsonl", "owner.lock"
WRITTEN = {  # what runs replace in one step, folder by folder
    "": (
        *("config.json", "provenance.json", METRICS, SAMPLES, "failure.txt"),
        *("vocabulary.json", "vocabulary.model", "labels.json"),
    ),
    "checkpoint": ("last.safetensors", "best.safetensors"),
    "samples": ("grid.png", "test.txt", "steps.jsonl"),
}
SCRATCH = ".tmp" + "[A-Za-z0-9]" * 6  # unfinished files of safetensors
MOST_FAILURE = 10_000  # bytes of failure.txt
PATIENCE = 10.0  # seconds for an owner that is about to end


class RunError(UserError):
    """A run directory that cannot be used; the message is for the user."""


class RunDirectory:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._held: IO[str] | None = None  # the lock of this process

    @property
    def last(self) -> Path:
        return self.path / "checkpoint" / "last.safetensors"

    @property
    def shards(self) -> Path:
        return self.path / "checkpoint" / "last"

    @property
    def best(self) -> Path:
        return self.path / "checkpoint" / "best.safetensors"

    def exists(self) -> bool:
        """Whether a run has begun here."""
        return (self.path / "config.json").exists()

    @contextmanager
    def owned(self, advice: str = "name another place with --out") -> Iterator[None]:
        """Keep other processes out until this one ends, by whatever cause; leftovers of dead ones are removed.

        `advice`: what to do where nothing can be written.
        """
        note = f"process {os.getpid()} on {platform.node()}"
        with ExitStack() as stack:
            try:
                make_folder(self.path)
                self._held = stack.enter_context(hold(self.path / OWNER, note, patience=PATIENCE))
                stack.callback(setattr, self, "_held", None)
                if self.exists():  # --out may name any folder
                    self._remove_unfinished()
                    self._repair_logs()
            except HeldError as held:
                raise RunError(f"{self.path} is in use by {held}; wait for it to end, or stop it") from None
            except OSError as error:
                raise RunError(f"{self.path} cannot be used ({error}); {advice}") from None
            yield

    def refuse_where_removed(self) -> None:
        """Where the directory of an owner is gone, or another's by now, nobody would find what is written there."""
        if self._held is not None and not is_at(self.path / OWNER, self._held):
            raise RunError(f"{self.path} was removed or emptied during the run, which ends it; train again")

    def _remove_unfinished(self) -> None:
        """Files that a killed process was writing, by the names that runs give them: users keep files here, too."""
        patterns = [(part, f"{name}.[0-9]*{WRITING}") for part, names in WRITTEN.items() for name in names]
        for part, pattern in (*patterns, ("checkpoint", SCRATCH)):
            self._remove(part, pattern)

    def _remove(self, part: str, pattern: str) -> None:
        for path in (self.path / part).glob(pattern):
            if path.is_file() and not path.is_symlink():
                path.unlink()

    def create(
        self, config: dict[str, Any], data: dict[str, Any] | None = None, keep: Callable[[], None] = lambda: None
    ) -> None:
        """Begin a run: write where its data came from, and what `keep` adds. An existing run is never overwritten.

        config.json comes last: it is what makes a directory a run.
        """
        self.refuse_to_overwrite()
        try:
            make_folder(self.path)
        except OSError as error:
            raise RunError(f"{self.path} cannot be made ({error.strerror}); name another place with --out") from None
        self.write("provenance.json", provenance() | ({"data": data} if data else {}))
        keep()
        self.write("config.json", {"format": FORMAT, **config})
        self._remove_unfinished()  # of an attempt that ended before the folder was a run

    def refuse_to_overwrite(self) -> None:
        if self.exists():
            raise RunError(
                f"{self.path} holds a run already; add --resume to carry it on, or name another place with --out"
            )
        if self.last.exists() or self._logs():
            raise RunError(
                f"{self.path} holds what is left of a run, without its config.json; name another place with --out"
            )

    def write(self, name: str, content: dict[str, Any]) -> None:
        """A JSON file, replaced in one step."""
        self._replace(name, json.dumps(content, indent=2, ensure_ascii=False) + "\n")

    def _replace(self, name: str, text: str) -> None:
        self.refuse_where_removed()
        try:
            replace_file(self.path / name, lambda temporary: temporary.write_text(text, encoding="utf-8"))
        except OSError as error:
            raise RunError(f"{self.path / name} cannot be written: {error}") from None

    def read(self, name: str) -> dict[str, Any]:
        path = self.path / name
        try:
            content = read_object(path)
        except FileNotFoundError:
            below = (place for depth in ("*", "*/*/*") for place in self.path.glob(f"{depth}/{name}"))
            inside = next((f"; {place.parent} is one" for place in below), "")
            raise RunError(f"{self.path} is not a run directory: it has no {name}{inside}") from None
        except NotADirectoryError:
            raise RunError(f"{self.path} is not a run directory: it is a file") from None
        except (ValueError, *UNREADABLE) as error:
            raise RunError(f"{path} cannot be read: {error}") from None
        if content.get("format", FORMAT) > FORMAT:
            raise RunError(f"{path} was written by a newer version (format {content['format']}); update this package")
        return content

    def append_metrics(self, line: dict[str, Any]) -> None:
        """One more line; it is on the disk after the next `sync_logs`."""
        self.append(METRICS, line)

    def append(self, name: str, line: dict[str, Any]) -> None:
        """One more line of a .jsonl file."""
        self.refuse_where_removed()
        try:
            with (self.path / name).open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise RunError(f"{self.path}/{name} cannot be written: {error}") from None

    def sync_logs(self) -> None:
        self.refuse_where_removed()
        try:
            for path in (*self._logs(), self.path):
                sync(path)
        except OSError as error:
            raise RunError(f"{self.path} cannot be written: {error}") from None

    def _logs(self) -> list[Path]:
        """The files of lines that are there."""
        return [path for name in (METRICS, SAMPLES) if (path := self.path / name).exists()]

    def _repair_logs(self) -> None:
        """Cut off last lines that a crash has torn, so that nothing is glued to them."""
        for path in self._logs():
            torn = read_tail(path, LONGEST_LINE).rpartition(b"\n")[2]
            if not torn:
                continue
            try:
                parse_json(torn)
            except ValueError:
                os.truncate(path, path.stat().st_size - len(torn))
            else:  # all but the end of the line
                with path.open("a", encoding="utf-8") as file:
                    file.write("\n")

    def metrics(self) -> list[dict[str, Any]]:
        return self._lines(METRICS, read_metrics)

    def samples(self) -> list[dict[str, Any]]:
        """What the model wrote at each evaluation."""
        return self._lines(SAMPLES, read_samples)

    def _lines(self, name: str, read: Callable[[Path], list[dict[str, Any]]]) -> list[dict[str, Any]]:
        path = self.path / name
        if not path.exists():
            return []
        try:
            return read(path)
        except (ValueError, *UNREADABLE) as error:
            raise RunError(f"{path} cannot be read: {error}") from None

    def forget_metrics_after(self, reached: Mapping[str, int], due: Mapping[str, int]) -> int:
        """Drop what was logged beyond a checkpoint, and what only a finished run has, before carrying on from it.

        `reached`: the last step of each kind of line that the checkpoint knows; samples are written with "validation".
        `due`: the last step at which each kind of line had to be written; once these are read, damage that follows is
        dropped, too. Returns how many lines were.
        """

        def has_all(lines: list[dict[str, Any]]) -> bool:
            found = {kind: max((x["step"] for x in lines if x["kind"] == kind), default=-1) for kind in due}
            return all(found[kind] >= at for kind, at in due.items())

        def is_known(line: dict[str, Any]) -> bool:
            known: bool = line["step"] <= reached[line.get("kind", "validation")]
            return known

        def has_samples(lines: list[dict[str, Any]]) -> bool:
            return max((line["step"] for line in lines), default=-1) >= due.get("validation", -1)

        metrics = self._lines(METRICS, lambda path: read_metrics(path, has_all))
        during = [line for line in metrics if line["kind"] in ("train", "validation")]
        lines = {METRICS: during, SAMPLES: self._lines(SAMPLES, lambda path: read_samples(path, has_samples))}
        for path in self._logs():
            kept = [json.dumps(line) + "\n" for line in lines[path.name] if is_known(line)]
            self._replace(path.name, "".join(kept))
        return sum(not is_known(line) for line in during)

    @contextmanager
    def failure_noted(self) -> Iterator[None]:
        """Write an error of this block to failure.txt, and remove that of an earlier attempt."""
        path = self.path / "failure.txt"
        try:
            path.unlink(missing_ok=True)
            yield
        except Exception as error:
            line = f"{one_line(error)}\n"
            with suppress(OSError, RunError):
                self.refuse_where_removed()
                replace_file(path, lambda temporary: temporary.write_text(line, encoding="utf-8"))
            raise

    def damage(self) -> str | None:
        """Why the metrics cannot be read, if so."""
        try:
            self.metrics()
        except RunError as error:
            return one_line(error)
        return None

    def failure(self) -> str | None:
        """The last line of the last attempt, where it failed."""
        try:
            text = read_tail(self.path / "failure.txt", MOST_FAILURE).decode(errors="replace")
            return one_line(text.strip().splitlines()[-1])
        except (OSError, IndexError):
            return None

    def finished(self) -> bool:
        """Whether the last step was reached."""
        return any(line["kind"] == "end" for line in self.metrics())

    def concluded(self, steps: int | None = None) -> bool:
        """Whether the run has been scored after its last step; with `steps`, after exactly this many."""
        return any(line["kind"] == "concluded" and steps in (None, line["step"]) for line in self.metrics())

    def surely_concluded(self, steps: int | None = None) -> bool:
        """The same, and not where metrics are damaged: training says what can be kept of them."""
        try:
            return self.concluded(steps)
        except RunError:
            return False


def find_runs(root: Path) -> Iterator[RunDirectory]:
    """Every run directory at or below `root`, also behind links, once each and in a fixed order."""
    seen: set[str] = set()
    configs: list[Path] = []
    for folder, below, files in os.walk(root, followlinks=True):
        if (real := os.path.realpath(folder)) in seen:
            below.clear()
            continue
        seen.add(real)
        below.sort(key=lambda name: (os.path.islink(os.path.join(folder, name)), name))
        configs += [Path(folder, name) for name in files if name == "config.json"]
    for config in sorted(configs):
        yield RunDirectory(config.parent)
