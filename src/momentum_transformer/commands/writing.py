"""`momentum generate` of a text run: a prompt goes on, token by token, as it is written."""

import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import torch

from ..data.folder import DataError
from ..experiments.configuration import ConfigurationError
from ..experiments.prompts import readable
from ..experiments.text import TextTask
from ..experiments.trained_tasks import load_text_task
from ..generation.tokens import Sampling, Writer

TYPED = "-"  # the prompt that stands for lines from standard input
ASKED = "> "  # on a terminal, before each of them


def write_text(
    path: Path, *, prompt: str, tokens: int, sampling: Sampling, stop: str = "", checkpoint: str = "best"
) -> None:
    """The prompt and what follows to standard output; tokens a second and the bytes of the state to standard error.

    With the prompt TYPED, lines from standard input take turns with the model: each goes on with the text so far.
    """
    if tokens < 1:
        raise ConfigurationError(f"--tokens must be 1 or more, not {tokens}")
    if not prompt:
        raise ConfigurationError("--prompt must not be empty: a model goes on from at least one character")
    stop = stop.replace("\\n", "\n")  # which shells do not do
    task = load_text_task(path, checkpoint)
    task.model.to("cuda" if torch.cuda.is_available() else "cpu")
    text: list[int] = []
    written, seconds, state = 0, 0.0, 0
    for turn, line in enumerate(typed_lines() if prompt == TYPED else (prompt,)):
        try:
            text += _encoded(task, f"\n{line}" if text else line or "\n")
        except ConfigurationError as error:
            if prompt != TYPED:
                raise
            sys.stderr.write(f"momentum: {error}\n")
            continue
        if prompt != TYPED or not sys.stdin.isatty():  # a terminal shows what is typed
            sys.stdout.write(line)
        started = time.perf_counter()
        writer = Writer(task.language_model, text, tokens=tokens, context=task.longest())
        sampled = writer.write(replace(sampling, seed=sampling.seed + turn))
        for part in until(readable(task.units.tokens[token] for token in sampled), stop):
            sys.stdout.write(part)
            sys.stdout.flush()
        sys.stdout.write("\n")
        sys.stdout.flush()
        written, seconds = written + tokens - writer.left, seconds + time.perf_counter() - started
        text, state = writer.seen, writer.state_bytes()
    if written:
        speed = f"{written:,} token{'s' * (written != 1)} in {seconds:.1f} s: {written / seconds:,.0f} tokens/s"
        sys.stderr.write(f"{speed}, a state of {state:,} bytes\n")


def typed_lines() -> Iterator[str]:
    """Lines of standard input as they come, without their ends; a terminal is asked for each. Ctrl-D ends them."""
    while True:
        try:
            yield input(ASKED if sys.stdin.isatty() else "")
        except (EOFError, KeyboardInterrupt) as end:
            if sys.stdin.isatty():
                sys.stdout.write("\n")  # what follows does not stand behind the question
            if isinstance(end, KeyboardInterrupt):
                raise
            return
        except UnicodeDecodeError:
            raise ConfigurationError("standard input is not UTF-8; convert it, for example by iconv") from None


def _encoded(task: TextTask, prompt: str) -> list[int]:
    try:
        return [int(token) for token in task.units.encode(prompt)]
    except DataError as error:
        raise ConfigurationError(f"--prompt: {error}") from None
    except UnicodeEncodeError:
        raise ConfigurationError("--prompt is not UTF-8; check the encoding of your terminal") from None


def until(parts: Iterable[str], stop: str) -> Iterator[str]:
    """The text up to the stop string; only what may be the beginning of that string is held back."""
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
