"""Attempts at a command, each a fork of this process: torch is imported once, a start takes milliseconds."""

import ctypes
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import torch

from momentum_transformer.cli import main
from momentum_transformer.training import metrics_recorder as recorder
from momentum_transformer.training import run_directory

LONGEST = 400.0  # seconds after which an attempt is called stuck
MODES = {"count": 0, "before": 1, "after": 2, "full": 3, "read-only": 4}  # of shim.c
LOADED = "MOMENTUM_FAULT_SHIM"
ASKING = {signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGINT}


@dataclass(frozen=True)
class Fault:
    """What happens to the operations on files below a folder."""

    folder: Path
    mode: str
    at: int = -1  # the number of an operation, or of bytes
    log: Path | None = None


def run_with_shim() -> None:
    """Start this program again with shim.c in front of the C library."""
    if folder := os.environ.pop(LOADED, None):
        del os.environ["LD_PRELOAD"]  # not for processes that are started from here
        shutil.rmtree(folder)
        return
    library = Path(tempfile.mkdtemp()) / "shim.so"
    source = Path(__file__).with_name("shim.c")
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    os.environ |= {"LD_PRELOAD": str(library), LOADED: str(library.parent)}
    os.execv(sys.executable, [sys.executable, "-m", "tests.faults", *sys.argv[1:]])


def warm_up(words: Sequence[str]) -> None:
    """Run a command here, so that what is imported and loaded on the way is there for every fork."""
    os.__dict__["nice"] = lambda step: 0  # a queue must not slow down everything after it
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), suppress(SystemExit):
        main(list(words))


def start(
    words: Sequence[str],
    *,
    out: Path,
    fault: Fault | None = None,
    environment: Mapping[str, str] | None = None,
    board: bool = False,
    terminal: int | None = None,
) -> int:
    """`momentum WORDS` in a child with its output in a file; returns its process id."""
    asked = signal.pthread_sigmask(signal.SIG_BLOCK, ASKING)  # to end: not before the child has begun
    child = os.fork()
    if child == 0:
        _become(words, out, fault, environment or {}, board, terminal)
    signal.pthread_sigmask(signal.SIG_SETMASK, asked)
    return child


def _become(
    words: Sequence[str],
    out: Path,
    fault: Fault | None,
    environment: Mapping[str, str],
    board: bool,
    terminal: int | None,
) -> NoReturn:
    code = 1
    try:
        os.setsid()
        if terminal is None:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        else:
            import fcntl
            import termios

            fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
        errors = os.open(out, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_APPEND, 0o600)
        os.dup2(errors if terminal is None else terminal, 1)
        os.dup2(errors, 2)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which `nohup python -m tests.faults` would ignore
        os.environ |= environment
        torch.manual_seed(random.SystemRandom().getrandbits(32))  # nobody may rely on what the fork has left
        run_directory.__dict__["_git"] = lambda *words: None
        run_directory.__dict__["PATIENCE"] = float(environment.get("PATIENCE", 0))
        if not board:
            recorder.__dict__["find_spec"] = lambda name: None
        if fault is not None:
            log = os.open(fault.log, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600) if fault.log else -1
            arm = ctypes.CDLL(None).fault_arm
            arm(str(fault.folder).encode(), MODES[fault.mode], ctypes.c_long(fault.at), log)
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ASKING)
        except KeyboardInterrupt:  # it came before the program: Python itself would end so
            os._exit(130)
        try:
            main(list(words))
        except SystemExit as stopped:
            code = stopped.code if isinstance(stopped.code, int) else 1
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def wait(child: int, seconds: float = LONGEST) -> int | None:
    """The exit code, negative where a signal ended it; None where it was stuck and had to be killed."""
    end = time.monotonic() + seconds
    pause = 0.001
    while True:
        is_late = time.monotonic() > end  # asked first: this process itself may have been stopped for a while
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if is_late:
            break
        time.sleep(pause)
        pause = min(0.02, 1.2 * pause)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def strike(child: int, after: float, number: int = signal.SIGKILL) -> int | None:
    """Send a signal after some seconds, unless the child has ended by then; returns how it ended."""
    end = time.monotonic() + after
    while (left := end - time.monotonic()) > 0:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(min(left, 0.01))
    os.kill(child, number)
    return wait(child)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
