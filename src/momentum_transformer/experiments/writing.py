"""`momentum generate` of a text run: a prompt goes on, token by token, as it is written."""

import codecs
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch

from ..data.folder import DataError
from ..generation.tokens import Sampling, Writer
from .configuration import ConfigurationError
from .runs import load_task_of
from .text import TEXT, TextTask


def write_text(
    path: Path, *, prompt: str, tokens: int, sampling: Sampling, stop: str = "", checkpoint: str = "best"
) -> None:
    """The prompt and what follows to standard output; tokens a second and the bytes of the state to standard error."""
    if tokens < 1:
        raise ConfigurationError(f"--tokens must be 1 or more, not {tokens}")
    if not prompt:
        raise ConfigurationError("--prompt must not be empty: a model goes on from at least one character")
    task = load_text_task(path, checkpoint)
    task.model.to("cuda" if torch.cuda.is_available() else "cpu")
    try:
        given = task.units.encode(prompt).tolist()
    except DataError as error:
        raise ConfigurationError(f"--prompt: {error}") from None
    except UnicodeEncodeError:
        raise ConfigurationError("--prompt is not UTF-8; check the encoding of your terminal") from None
    writer = Writer(task.language_model, given, tokens=tokens, context=task.longest())
    started, written = time.perf_counter(), 0

    def counted() -> Iterator[bytes]:
        nonlocal written
        for token in writer.write(sampling):
            written += 1
            yield task.units.tokens[token]

    sys.stdout.write(prompt)
    sys.stdout.flush()
    for part in until(readable(counted()), stop):
        sys.stdout.write(part)
        sys.stdout.flush()
    sys.stdout.write("\n")
    sys.stdout.flush()
    seconds = time.perf_counter() - started
    sys.stderr.write(
        f"{written:,} tokens in {seconds:.1f} s: {written / seconds:,.0f} tokens/s, "
        f"a state of {writer.state_bytes():,} bytes\n"
    )


def load_text_task(path: Path, checkpoint: str) -> TextTask:
    """The task of a run that writes, with its trained weights and its vocabulary."""
    task = load_task_of([TEXT], path, checkpoint, cannot="writes no text")
    assert isinstance(task, TextTask)
    return task


def readable(tokens: Iterable[bytes]) -> Iterator[str]:
    """Text as soon as its characters are whole. What would move a cursor, or is no UTF-8, becomes a mark."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for token in tokens:
        text = decoder.decode(token)
        yield "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)
    yield decoder.decode(b"", final=True)


def until(parts: Iterable[str], stop: str) -> Iterator[str]:
    """Everything before the stop string, where it comes; held back is only what may be the beginning of it."""
    held = ""
    for part in parts:
        held += part
        if stop and stop in held:
            yield held[: held.index(stop)]
            return
        keep = next((n for n in range(min(len(stop) - 1, len(held)), 0, -1) if stop.startswith(held[-n:])), 0)
        if len(held) > keep:
            yield held[: len(held) - keep]
            held = held[len(held) - keep :]
    yield held
