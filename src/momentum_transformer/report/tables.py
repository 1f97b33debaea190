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
        line = "|" + "|".join(f" {column} " for column in self.columns) + "|"
        columns = [tuple(row[i] for row in self.rows) for i in range(len(self.columns))]
        rule = "|" + "|".join("---:" if i and of_numbers(cells) else "---" for i, cells in enumerate(columns)) + "|"
        rows = ["|" + "|".join(f" {cell} " for cell in row) + "|" for row in self.rows]
        return "\n".join([line, rule, *rows]) + "\n"

    def html(self) -> str:
        head = "".join(f"<th>{html.escape(column)}</th>" for column in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in self.rows
        )
        caption = html.escape(self.title)
        return f"<table><caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


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
