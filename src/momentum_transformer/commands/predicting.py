"""`momentum predict`: lines in, labels out, as they come."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import IO

import torch
from torch import Tensor

from ..data.folder import DataError
from ..data.table_file import kind_of, read_table
from ..experiments.configuration import ConfigurationError, nearest
from ..experiments.labelling import TABLE, TableTask
from ..experiments.runs import load_task_of
from .lines import is_standard, line_batches, name_of, open_output

FORMATS = ("tsv", "jsonl")
Lines = list[tuple[int, str]]  # each with its number in the file


def predict_labels(
    path: Path,
    *,
    text: Path | None,
    out: Path | None,
    form: str,
    text_column: str | None,
    batch: int,
    checkpoint: str,
) -> None:
    """A label and its probability for each line of a file or of standard input, or for each row of a table."""
    if batch < 1:
        raise ConfigurationError(f"--batch must be 1 or more, not {batch}")
    if form not in FORMATS:
        raise nearest("format", form, FORMATS)
    if text is not None and out is not None and out.resolve() == text.resolve():
        raise ConfigurationError(f"--out {out} is the text itself; name another file")
    task = load_task_of((TABLE,), path, checkpoint, cannot="labels no texts")
    assert isinstance(task, TableTask)
    task.model.to("cuda" if torch.cuda.is_available() else "cpu").eval()
    batches = _batches(text, text_column, task, batch)
    waiting = next(batches, [])  # what is wrong with the text is said before anything is written
    with ExitStack() as stack:
        place: IO[str] = sys.stdout if out is None else stack.enter_context(open_output(out))
        try:
            while waiting:
                _answer(task, waiting, name_of(text), form, place)
                waiting = next(batches, [])
        except BrokenPipeError:  # whoever reads has had enough
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (for the flush at exit)


def _batches(text: Path | None, column: str | None, task: TableTask, size: int) -> Iterator[Lines]:
    if text is not None and not is_standard(text) and kind_of(text) is not None:
        rows = ((row.line, row.cells[0]) for row in read_table(text, [column or task.config.data.text_column]))
        while some := list(islice(rows, size)):
            yield some
        return
    if column is not None:
        raise ConfigurationError(f"--text-column is for tables (.csv, .tsv, .jsonl); {name_of(text)} is read by lines")
    number = 1
    for lines in line_batches(text, size):
        yield list(enumerate(lines, start=number))
        number += len(lines)


def _answer(task: TableTask, lines: Lines, name: str, form: str, place: IO[str]) -> None:
    """Write an answer for each line; where one is empty, the answers before it come before the error."""
    empty = next((i for i, (_, line) in enumerate(lines) if not line.strip()), len(lines))
    if empty:
        for shares in classify(task, [line for _, line in lines[:empty]]).tolist():
            best = max(range(len(shares)), key=shares.__getitem__)
            label = task.labels[best]
            if form == "tsv":
                place.write(f"{label}\t{shares[best]:.4f}\n")
            else:
                answer = {"label": label, "probability": shares[best]}
                answer["probabilities"] = dict(zip(task.labels, shares, strict=True))
                place.write(json.dumps(answer, ensure_ascii=False) + "\n")
        place.flush()
    if empty < len(lines):
        raise DataError(f"{name}, line {lines[empty][0]}: there is no text to label; delete the line")


def classify(task: TableTask, texts: list[str]) -> Tensor:
    """Probabilities (texts, labels); texts are cut to the length of training."""
    cut = [text.encode(errors="replace")[: task.config.data.length] for text in texts]
    tokens = torch.zeros(len(cut), max(map(len, cut)), dtype=torch.long)
    for row, text in zip(tokens, cut, strict=True):
        row[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8).long() + 1
    tokens = tokens.to(next(task.model.parameters()).device)
    with torch.no_grad():
        logits: Tensor = task.model(tokens, tokens > 0)
    return logits.double().softmax(-1).cpu()
