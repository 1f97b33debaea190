"""A call of a kernel that Ctrl-C can end.

Python runs its signal handlers in the main thread, and only between its own instructions. So a call that may take long
runs in a thread of its own while the main thread waits; if a handler raises, the kernels are told to stop, which they
look at between segments of tokens, or between parts of a pass over them. A handler that raises nothing, such as that
of training, changes nothing.
"""

import ctypes
import threading
from typing import Any

from .library import LineConvolution, Problem, RowNorm

# more may take longer than a tenth of a second or so
LONG = 2**28  # products of a query, a key and a value
LONG_PASS = 2**24  # numbers that are read once


def call(function: Any, problem: ctypes.Structure) -> int:
    """What the kernel returns."""
    if not _is_long(problem) or threading.current_thread() is not threading.main_thread():
        return int(function(ctypes.byref(problem)))
    return _call_and_listen(function, problem)


def _is_long(problem: ctypes.Structure) -> bool:
    match problem:
        case Problem():
            tokens = problem.b * problem.h * max(problem.n, problem.key_count)
            return bool(tokens * problem.d * problem.e > LONG)
        case LineConvolution():
            return bool(problem.b * problem.n * problem.c > LONG_PASS)
        case RowNorm():
            return bool(problem.b * problem.h * problem.n * problem.d > LONG_PASS)
        case _:
            return False


def _call_and_listen(function: Any, problem: Any) -> int:
    stop = ctypes.c_uint8(0)
    problem.stop = ctypes.addressof(stop)
    finished = threading.Event()
    codes: list[int] = []

    def work() -> None:
        try:
            codes.append(int(function(ctypes.byref(problem))))
        finally:
            finished.set()

    thread = threading.Thread(target=work, name="native kernels", daemon=True)
    try:
        thread.start()
        finished.wait()
    except BaseException:
        stop.value = 1
        if thread.ident is not None or thread in threading.enumerate():
            _wait_in_any_case(finished)
        raise
    return codes[0]


def _wait_in_any_case(finished: threading.Event) -> None:
    """Kernels write into tensors, which must not be freed before they end, however often somebody presses Ctrl-C."""
    while True:
        try:
            finished.wait()
        except BaseException:
            continue
        return
