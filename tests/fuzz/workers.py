"""Cases of one parser in a process of its own, with a limit on its memory and a clock for every case."""

import faulthandler
import io
import logging
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
from contextlib import suppress
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


class Tally:
    """Counts in memory that outlives the process which counts."""

    FORM = struct.Struct("<qqqqd")

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, self.FORM.size)

    def write(self, number: int, accepted: int, refused: int, largest: int, slowest: float) -> None:
        self._memory[:] = self.FORM.pack(number, accepted, refused, largest, slowest)

    def read(self) -> tuple[int, int, int, int, float]:
        return self.FORM.unpack(self._memory[:])


def fuzz(parser: Parser, cases: int, seed: int) -> Outcome:
    """Run all cases; a process that dies is a failure of its case, and the next one carries on behind it."""
    outcome = Outcome(parser.name, cases)
    first = 0
    while first < cases:
        tally = Tally()
        receiver, sender = multiprocessing.Pipe(duplex=False)
        child = os.fork()
        if child == 0:
            _work(parser, range(first, cases), seed, tally, sender)
        sender.close()
        with suppress(EOFError):
            while True:
                kind, line = receiver.recv()
                (outcome.failures if kind == "failure" else outcome.slow).append(line)
        _, status = os.waitpid(child, 0)
        receiver.close()
        number, accepted, refused, largest, slowest = tally.read()
        outcome.accepted, outcome.refused = outcome.accepted + accepted, outcome.refused + refused
        outcome.slowest, outcome.largest = max(outcome.slowest, slowest), max(outcome.largest, largest)
        if number < cases:
            outcome.failures.append(f"case {number}: the process ended with status {status}")
        first = number + 1
    return outcome


def _work(parser: Parser, numbers: range, seed: int, tally: Tally, sender: Any) -> None:
    """In the child; does not return."""
    shared = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(dir=shared if shared.is_dir() else None))
    sys.stderr = io.StringIO()
    faulthandler.disable()
    warnings.simplefilter("ignore")
    logging.disable()
    accepted = refused = 0
    slowest = 0.0
    try:
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + MOST_BYTES, resource.RLIM_INFINITY))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        before = _peak()
        for number in numbers:
            tally.write(number, accepted, refused, _peak() - before, slowest)
            content = case(parser, number, seed)
            signal.alarm(PATIENCE)
            started = time.process_time()
            try:
                parser.read(content, folder)
                accepted += 1
            except UserError:
                refused += 1
            except BaseException as error:
                where = traceback.extract_tb(error.__traceback__)[-1]
                place = f"{Path(where.filename).name}:{where.lineno}"
                sender.send(("failure", f"case {number}: {error!r:.200} at {place}"))
            seconds = time.process_time() - started
            signal.alarm(0)
            slowest = max(slowest, seconds)
            if seconds > MOST_SECONDS:
                sender.send(("slow", f"case {number}: {seconds:.1f} s"))
        tally.write(numbers.stop, accepted, refused, _peak() - before, slowest)
        sender.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
