"""Cases of one parser in a process of its own, with a limit on its memory and a clock for every case."""

import faulthandler
import io
import mmap
import multiprocessing
import os
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from momentum_transformer.errors import UserError

from .mutations import Mutate

MOST_SECONDS = 2.0
MOST_BYTES = 500 * 2**20
PATIENCE = 60  # seconds until a case that does not end is ended


@dataclass(frozen=True)
class Parser:
    """A reader of one kind of input, good inputs, and how they are damaged."""

    name: str
    seeds: Sequence[bytes]
    mutate: Mutate
    read: Callable[[bytes, Path], Any]  # the input, and a folder to put it in


@dataclass
class Outcome:
    parser: str
    cases: int = 0
    accepted: int = 0
    refused: int = 0
    failures: list[str] = field(default_factory=list)  # tracebacks, crashes
    slow: list[str] = field(default_factory=list)
    slowest: float = 0.0  # seconds of one case
    largest: int = 0  # bytes beyond what the process had before


def case(parser: Parser, number: int, seed: int) -> bytes:
    """The same input for the same numbers."""
    return parser.mutate(Random(f"{seed} {parser.name} {number}"), parser.seeds)


def fuzz(parser: Parser, cases: int, seed: int) -> Outcome:
    """Run all cases; a process that dies is a failure of its case, and the next one carries on behind it."""
    outcome = Outcome(parser.name)
    place = mmap.mmap(-1, 8)
    first = 0
    while first < cases:
        receiver, sender = multiprocessing.Pipe(duplex=False)
        child = os.fork()
        if child == 0:
            _work(parser, range(first, cases), seed, place, sender)
        sender.close()
        found: Outcome | None = None
        try:
            found = receiver.recv()
        except EOFError:
            found = None
        _, status = os.waitpid(child, 0)
        receiver.close()
        if found is not None:
            first = cases
            _add(outcome, found)
        else:
            (died,) = struct.unpack("<q", place[:8])
            outcome.failures.append(f"case {died}: the process ended with status {status}")
            outcome.cases += died + 1 - first
            first = died + 1
    return outcome


def _add(outcome: Outcome, found: Outcome) -> None:
    for name in ("cases", "accepted", "refused", "failures", "slow"):
        setattr(outcome, name, getattr(outcome, name) + getattr(found, name))
    outcome.slowest, outcome.largest = max(outcome.slowest, found.slowest), max(outcome.largest, found.largest)


def _work(parser: Parser, numbers: range, seed: int, place: mmap.mmap, sender: Any) -> None:
    """In the child; does not return."""
    shared = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(dir=shared if shared.is_dir() else None))
    sys.stderr = io.StringIO()
    faulthandler.disable()
    warnings.simplefilter("ignore")
    outcome = Outcome(parser.name)
    try:
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + MOST_BYTES, resource.RLIM_INFINITY))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        before = _peak()
        for number in numbers:
            place[:8] = struct.pack("<q", number)
            content = case(parser, number, seed)
            signal.alarm(PATIENCE)
            started = time.process_time()
            try:
                parser.read(content, folder)
                outcome.accepted += 1
            except UserError:
                outcome.refused += 1
            except BaseException as error:
                where = traceback.extract_tb(error.__traceback__)[-1]
                outcome.failures.append(f"case {number}: {error!r:.200} at {Path(where.filename).name}:{where.lineno}")
            seconds = time.process_time() - started
            signal.alarm(0)
            outcome.cases += 1
            outcome.slowest = max(outcome.slowest, seconds)
            if seconds > MOST_SECONDS:
                outcome.slow.append(f"case {number}: {seconds:.1f} s")
        outcome.largest = _peak() - before
        sender.send(outcome)
        sender.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
