"""Official files over the network: resumed where they broke off, checked, and renamed only when whole."""

import hashlib
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from .folder import DataError

BLOCK = 1 << 18


class Remote(NamedTuple):
    """A file as its publisher offers it."""

    name: str
    url: str
    md5: str


def fetch(file: Remote, folder: Path, *, timeout: float = 20) -> Path:
    """The file in `folder`, downloaded if it is not there. A broken download leaves `<name>.part` to carry on from."""
    target = folder / file.name
    if target.exists():
        return target
    partial = target.with_name(f"{file.name}.part")
    try:
        _receive(file, partial, timeout)
        digest = hashlib.md5(partial.read_bytes(), usedforsecurity=False).hexdigest()
        if digest != file.md5:
            partial.unlink()
            raise DataError(f"{file.url} has checksum {digest}, not {file.md5}; it was removed, try again")
        partial.replace(target)
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise DataError(f"{file.url} could not be downloaded ({reason})") from None
    return target


def _receive(file: Remote, partial: Path, timeout: float) -> None:
    done = partial.stat().st_size if partial.exists() else 0
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
        partial.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("ab" if resumed else "wb") as out, _bar() as bar:
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
