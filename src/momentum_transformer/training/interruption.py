"""What asks a process to end: signals, answered between two steps, and the end of its parent."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

# SIGHUP and SIGQUIT are a closed terminal and its Ctrl-\; SIGTERM is what schedulers send
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
LIFELINE = "MOMENTUM_LIFELINE"  # the number of a pipe's end, which closes when the parent is gone, however it ends


class Interruption:
    is_set = False


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Ctrl-C lets the current step finish, so that there is something whole to save; a second one stops at once.

    The other signals do the same, however often they come; a closed terminal, unless `nohup` asked to ignore it.
    """
    flag = Interruption()

    def handler(number: int, frame: Any) -> None:
        if flag.is_set and number == signal.SIGINT:
            raise KeyboardInterrupt
        flag.is_set = True

    try:
        ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        wanted = [number for number in SIGNALS if not (ignored and number == signal.SIGHUP)]
        before = {number: signal.signal(number, handler) for number in wanted}
    except ValueError:  # not the main thread: leave signals alone
        yield flag
        return
    try:
        yield flag
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextmanager
def lifeline() -> Iterator[tuple[int, dict[str, str], Callable[[], None]]]:
    """For children that must not outlive this process: a pipe to pass on, additions to their environment, its end."""
    reading, writing = os.pipe()
    try:
        with ExitStack() as held:
            held.callback(os.close, writing)
            yield reading, {LIFELINE: str(reading)}, held.close
    finally:
        os.close(reading)


def follow_parent() -> None:
    """In a child that was given a lifeline: the end of the parent is a SIGTERM."""
    given = os.environ.pop(LIFELINE, None)
    if given is None:
        return

    def wait() -> None:
        os.read(int(given), 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()
