"""Tables as rows of text, for Markdown and for HTML."""

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Table:
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        columns = self._told()
        line = "|" + "|".join(f" {name} " for name, _ in columns) + "|"
        rule = (
            "|" + "|".join("---:" if i and of_numbers(cells) else "---" for i, (_, cells) in enumerate(columns)) + "|"
        )
        rows = ["|" + "|".join(f" {cells[i]} " for _, cells in columns) + "|" for i in range(len(self.rows))]
        return "\n".join([line, rule, *rows]) + "\n"

    def html(self) -> str:
        columns = self._told()
        kinds = ["" if i and of_numbers(cells) else ' class="words"' for i, (_, cells) in enumerate(columns)]
        head = "".join(f"<th{kind}>{_escaped(name)}</th>" for kind, (name, _) in zip(kinds, columns, strict=True))
        body = "".join(
            "<tr>"
            + "".join(f"<td{kind}>{_escaped(cells[i])}</td>" for kind, (_, cells) in zip(kinds, columns, strict=True))
            + "</tr>"
            for i in range(len(self.rows))
        )
        caption = f"<caption><span>{_escaped(self.title)}</span></caption>"
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def _told(self) -> list[tuple[str, tuple[str, ...]]]:
        """Names and cells of columns, but for those in which no row says anything."""
        columns = [(name, tuple(row[i] for row in self.rows)) for i, name in enumerate(self.columns)]
        return [column for column in columns if not self.rows or any(cell.strip("– ") for cell in column[1])]


def _escaped(text: str) -> str:
    """For a page; no line ends between a number and its %."""
    return html.escape(text).replace(" %", "&nbsp;%")


def of_numbers(cells: Sequence[str]) -> bool:
    """Whether most cells that say something are numbers, which stand to the right of their column."""
    said = [cell for cell in cells if cell.strip("–- ")]
    return 2 * sum(len(cell) < 25 and re.match(r"[-+]?\d", cell) is not None for cell in said) >= len(said)


def spread(values: Sequence[float] | np.ndarray, digits: int) -> str:
    """Mean ± half the range over seeds; a single value stands alone."""
    values = np.asarray(values, dtype=float)
    if not np.isfinite(values).all():
        reached = int(np.isfinite(values).sum())
        return f"{reached} of {len(values)} runs" if reached else "never"
    mean = f"{round(float(values.mean()), digits) + 0.0:.{digits}f}"  # never -0.00
    return mean if len(values) == 1 else f"{mean} ± {(values.max() - values.min()) / 2:.{digits}f}"
