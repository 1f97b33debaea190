"""Runs side by side in processes of their own: a line for each on a terminal, read from what they note."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console

from ..bounded import parse_json, read_tail
from ..experiments.runs import Request
from ..training.progress import progress_bar, shortened

EVERY = 0.5  # seconds between looks
TAIL = 4096  # bytes at the end of metrics.jsonl, more than a line has


class Watch:
    """While it is open, each run that is `running` has a bar; without a terminal, runs speak for themselves."""

    def __init__(self, console: Console) -> None:
        self.bar = progress_bar(console) if console.is_terminal else None
        self._paths: dict[Any, Path] = {}
        self._closed = threading.Event()

    def __enter__(self) -> "Watch":
        if self.bar is not None:
            self.bar.start()
            self._thread = threading.Thread(target=self._look, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        if self.bar is not None:
            self._thread.join()
            self.bar.stop()

    @contextmanager
    def running(self, request: Request, path: Path) -> Iterator[bool]:
        """Show the line of a run while its process runs, and above the bars how far it came; yields whether that
        process should be silent."""
        if self.bar is None:
            yield False
            return
        changed = "".join(f" {setting.rpartition('.')[2]}" for setting in request.settings)
        title = f"seed {request.seed} {request.experiment} {request.model}{changed}"
        line = self.bar.add_task(title, total=request.config.train.steps, status="", more="")
        self._paths[line] = path
        try:
            yield True
        finally:
            self._paths.pop(line)
            self.bar.remove_task(line)
            self._tell(title, path, request.config.train.steps)

    def _tell(self, title: str, path: Path, steps: int) -> None:
        """One line about a run whose process has ended."""
        assert self.bar is not None
        noted = last_noted(path)
        reached = f"  step {noted['step']}/{steps}  loss {noted['loss']:.4f}" if noted else "  no step"
        room = max(1, self.bar.console.width - len(reached))
        self.bar.console.print(shortened(title, room) + reached, highlight=False, markup=False, soft_wrap=True)

    def _look(self) -> None:
        while not self._closed.wait(EVERY):
            for line, path in list(self._paths.items()):
                self._update(line, path)

    def _update(self, line: Any, path: Path) -> None:
        noted = last_noted(path)
        if self.bar is not None and noted is not None:
            with suppress(KeyError):  # its process has just ended
                self.bar.update(line, completed=noted["step"], status=f"loss {noted['loss']:.4f}")


def last_noted(run: Path) -> dict[str, Any] | None:
    """The last line of a run's metrics that has a loss."""
    try:
        lines = read_tail(run / "metrics.jsonl", TAIL).splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        try:
            noted = parse_json(line)
        except ValueError:  # cut off, at either end
            continue
        if (
            isinstance(noted, dict)
            and noted.get("kind") in ("train", "validation")
            and all(isinstance(noted.get(name), int | float) for name in ("loss", "step"))
        ):
            return noted
    return None
