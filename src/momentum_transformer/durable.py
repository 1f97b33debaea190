"""Files that survive a crash: replaced in one step, on the disk before anybody relies on them; and locks."""

import errno
import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import IO

WRITING = ".writing"  # how the name of an unfinished file ends
NOTE_SECONDS = 1.0  # in which the holder of a lock writes its note


class HeldError(Exception):
    """A lock that another process holds; the message is what that process wrote into it."""


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """`write` fills a file beside `path`, which then takes its place; until then, what was there is untouched."""
    with replacing(path) as temporary:
        write(temporary)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """The name of a file to fill, which takes the place of `path` where nothing fails; each process has its own.

    It is locked until then; what dead processes have left, without a lock, is removed.
    """
    for left in path.parent.glob(f"{escape(path.name)}.[0-9]*{WRITING}"):
        with suppress(OSError):
            if is_held(left) is False:
                left.unlink()
    temporary = path.with_name(f"{path.name}.{os.getpid()}{WRITING}")
    try:
        with temporary.open("ab") as file:
            with suppress(OSError):  # a file system without locks: nothing is removed there
                fcntl.flock(file, fcntl.LOCK_EX)
            yield temporary
            sync(temporary)
            temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    sync(path.parent)


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """A folder to fill, which becomes `path` where nothing fails; what a killed process left of one is removed."""
    path = Path(os.path.abspath(path))  # a name for its neighbour, whatever it was called by
    temporary = path.with_name(path.name + WRITING)
    shutil.rmtree(temporary, ignore_errors=True)
    make_folder(temporary)
    try:
        yield temporary
        for inside in (*temporary.rglob("*"), temporary):
            sync(inside)
        temporary.rename(path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    sync(path.parent)


def make_folder(path: Path) -> None:
    """The folder and those above it, known to the disk."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    if missing:
        path.mkdir(parents=True, exist_ok=True)
    for folder in reversed(missing):
        sync(folder.parent)


def sync(path: Path) -> None:
    """Wait until the disk has what was written to a file, or which names a folder holds."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if not (path.is_dir() and error.errno in (errno.EINVAL, errno.ENOTSUP)):  # some systems sync no folders
            raise
    finally:
        os.close(descriptor)


@contextmanager
def hold(path: Path, note: str, *, patience: float = 0.0) -> Iterator[IO[str]]:
    """A lock with a note about its holder. It falls with the process that holds it, however that ends.

    A holder that is about to end is given `patience` seconds.
    """
    with path.open("a+", encoding="utf-8", errors="replace") as file:
        end = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                file.seek(0)
                holder = file.read()  # empty where it is about to write its note
                if time.monotonic() >= end + (0 if holder else NOTE_SECONDS):
                    raise HeldError(holder or "another process") from None
                time.sleep(0.05)
        write_note(file, note)
        yield file


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """A lock that others wait for; its file goes with the last of them."""
    while True:
        with path.open("a", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not is_at(path, file):  # the holder before has removed it: the lock is another file now
                continue
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
            return


def is_at(path: Path, file: IO[str]) -> bool:
    """Whether `path` still names this open file: it may have been removed, and another one made there."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except (FileNotFoundError, NotADirectoryError):
        return False


def is_held(path: Path) -> bool | None:
    """Whether a process holds this lock, without waiting for it; None where there is no such file to be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return None
    else:
        return False
    finally:
        os.close(descriptor)  # and with it the lock


def write_note(file: IO[str], note: str) -> None:
    """What those read who find the lock held."""
    file.seek(0)
    file.truncate()
    file.write(note)
    file.flush()
