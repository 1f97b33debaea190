"""Official files over the network: resumed where they broke off, checked, and renamed only when whole."""

import hashlib
import os
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from ..durable import WRITING, alone, is_held
from .folder import DataError

BLOCK = 1 << 18


class Remote(NamedTuple):
    """A file as its publisher offers it."""

    name: str
    url: str
    md5: str


def fetch(file: Remote, folder: Path, *, timeout: float = 20) -> Path:
    """The file in `folder`, downloaded if it is not there: by one process, for which others wait.

    A broken download leaves `<name>.<process>.writing`, and the next one carries on from there.
    """
    target, lock = folder / file.name, folder / f"{file.name}.lock"
    if target.exists():
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if is_held(lock):
            console = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)
            console.print(f"another process downloads {target}; waiting for it")
        with alone(lock):
            if not target.exists():  # else another process has fetched it meanwhile
                _download(file, target, timeout)
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise DataError(f"{file.url} could not be downloaded ({reason})") from None
    return target


def _download(file: Remote, target: Path, timeout: float) -> None:
    unfinished = _unfinished(target)
    _receive(file, unfinished, timeout)
    digest = hashlib.md5(unfinished.read_bytes(), usedforsecurity=False).hexdigest()
    if digest != file.md5:
        unfinished.unlink()
        raise DataError(f"{file.url} has checksum {digest}, not {file.md5}; it was removed, try again")
    unfinished.replace(target)


def _unfinished(target: Path) -> Path:
    """The file to write into, which begins with the most that an earlier download has left."""
    own = target.with_name(f"{target.name}.{os.getpid()}{WRITING}")
    found = (path for path in target.parent.glob(f"{target.name}.[0-9]*{WRITING}") if path.is_file())
    left = sorted(found, key=lambda path: path.stat().st_size)
    for shorter in left[:-1]:
        shorter.unlink()
    for longest in left[-1:]:
        longest.replace(own)
    return own


def _receive(file: Remote, unfinished: Path, timeout: float) -> None:
    done = unfinished.stat().st_size if unfinished.exists() else 0
    request = Request(file.url, headers={"Range": f"bytes={done}-"} if done else {})
    try:
        response = urlopen(request, timeout=timeout)
    except HTTPError as error:
        error.close()
        if error.code == 416 and done:  # there is nothing beyond what we have; the checksum decides
            return
        raise
    with response:
        resumed = response.status == 206
        done = done if resumed else 0
        length = response.headers.get("Content-Length")
        total = None if length is None else done + int(length)
        with unfinished.open("ab" if resumed else "wb") as out, _bar() as bar:
            task = bar.add_task(file.name, total=total, completed=done)
            while block := response.read(BLOCK):
                out.write(block)
                bar.advance(task, len(block))
            if total is not None and out.tell() < total:
                raise OSError(f"broke off after {out.tell():,} of {total:,} bytes; the next try carries on from there")


def _bar() -> Progress:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal)
