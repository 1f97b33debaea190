"""What the user sees while training: a line per evaluation; on a terminal a bar below, and what a model writes.

A terminal that has been closed stops nothing: there is a run to be saved.
"""

import sys
import textwrap
from contextlib import suppress
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Column
from rich.text import Text

WIDE = 120  # columns of a terminal from which more than the least is shown
SAMPLE = 4  # lines of a sample that a terminal shows
KEPT = "\xa0"  # a space at which no line ends
LOGGED = 80  # columns of a line where there is no terminal
OTHERS = 50  # columns of what stands behind the name, where it is the least


class NameColumn(ProgressColumn):
    """The name of a bar, on one line."""

    def __init__(self, room: int | None) -> None:
        super().__init__(Column(no_wrap=True, overflow="ellipsis", max_width=room))
        self._room = room

    def render(self, task: Task) -> Text:
        return Text(task.description if self._room is None else shortened(task.description, self._room))


def shortened(name: str, room: int) -> str:
    """The first two thirds of what there is room for, and the last third: names differ at their ends."""
    end = (room - 1) // 3
    return name if len(name) <= room else f"{name[: room - 1 - end]}…{name[len(name) - end :]}"


def progress_bar(console: Console) -> Bar:
    """In 80 columns: a name, a bar, steps, the loss, the time left. A narrower terminal cuts the middle of the name,
    a wider one shows more."""
    wide = console.width >= WIDE
    columns = [
        NameColumn(None if wide else max(1, console.width - OTHERS)),
        BarColumn(bar_width=24 if wide else 10),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[status]}", table_column=Column(no_wrap=True)),
        TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True)),
        TextColumn("left"),
    ]
    if wide:
        columns.append(TextColumn("{task.fields[more]}", table_column=Column(no_wrap=True, overflow="ellipsis")))
    return Bar(*columns, console=console)


def in_words(what: str, metrics: dict[str, float], columns: int, rest: str = "") -> str:
    """Scores for a reader, in lines that never part a name from its value: what is the loss once more, as nats per
    character of bytes are, is left out."""
    kept = {name: value for name, value in metrics.items() if name == "loss" or value != metrics.get("loss")}
    scores = "  ".join(f"{name} {value:.4f}".replace("_", " ").replace(" ", KEPT) for name, value in kept.items())
    lines = textwrap.fill(f"{what}: {scores}{rest}", columns, subsequent_indent="  ", break_on_hyphens=False)
    return lines.replace(KEPT, " ")


class Progress:
    def __init__(self, title: str, steps: int, done: int, *, leads: bool) -> None:
        self.title, self.steps, self.done = title, steps, done
        self.console = Console(quiet=not leads)
        self.validation = ""
        self.bar: Bar | None = None
        self.rate = 0.0

    def __enter__(self) -> "Progress":
        if self.console.is_terminal and not self.console.quiet:
            self.bar = progress_bar(self.console)
            self.bar.start()
            self.task = self.bar.add_task(self.title, total=self.steps, completed=self.done, status="", more="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            with suppress(OSError):
                self.bar.stop()

    def log(self, step: int, line: dict[str, Any]) -> None:
        self.rate = line["tokens_per_second"] or 0.0
        if self.bar is not None:
            more = f"{self.rate:,.0f} tokens/s  {self.validation}"
            with suppress(OSError):
                self.bar.update(self.task, completed=step, status=f"loss {line['loss']:.4f}", more=more)

    def validated(self, step: int, metrics: dict[str, float]) -> None:
        self.validation = in_words("validation", metrics, sys.maxsize)
        if self.bar is None:
            rate = f"  {self.rate:,.0f} tokens/s" if self.rate else ""
            lines = in_words(f"{self.title}  step {step}/{self.steps}  validation", metrics, LOGGED, rate)
            with suppress(OSError):
                self.console.print(lines, highlight=False, soft_wrap=True)
        else:
            with suppress(OSError):
                lines = in_words(f"step {step}", metrics, self.console.width)
                self.console.print(lines, highlight=False, soft_wrap=True)

    def sampled(self, text: str) -> None:
        """Show on a terminal what the model writes at this evaluation."""
        if self.bar is None:
            return
        room = max(1, self.console.width - 4)
        printable = "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text.strip())
        lines = Text(printable).wrap(self.console, room)[:SAMPLE]
        with suppress(OSError):
            self.console.print(*(Text(f"  {line.plain}", style="dim") for line in lines), sep="\n")
