"""Downloads are resumed, checked and renamed at the end; what fails leaves no half file behind."""

import hashlib
import multiprocessing
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from momentum_transformer.data.download import Remote, fetch
from momentum_transformer.data.folder import DataError

CONTENT = bytes(range(256)) * 40
MD5 = hashlib.md5(CONTENT).hexdigest()


class Handler(BaseHTTPRequestHandler):
    asked: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        span = self.headers.get("Range")
        Handler.asked.append(span)
        start = int(span.removeprefix("bytes=").rstrip("-")) if span and "plain" not in self.path else 0
        if "missing" in self.path:
            self.send_error(404)
            return
        if start >= len(CONTENT):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(CONTENT) - start))
        self.end_headers()
        if "slow" in self.path:
            self.wfile.write(CONTENT[start:4000])
            self.wfile.flush()
            time.sleep(1)
            start = 4000
        self.wfile.write(CONTENT[start : 4000 if "breaks" in self.path else None])

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    Handler.asked.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_file_is_fetched_once(server: str, tmp_path: Path) -> None:
    remote = Remote("file", f"{server}/file", MD5)
    path = fetch(remote, tmp_path / "new")
    assert path.read_bytes() == CONTENT
    assert [p.name for p in path.parent.iterdir()] == ["file"]
    assert fetch(remote, tmp_path / "new") == path
    assert Handler.asked == [None]


def test_a_broken_download_is_carried_on(server: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="broke off after 4,000 of 10,240 bytes; the next try carries on"):
        fetch(Remote("file", f"{server}/breaks", MD5), tmp_path)
    assert not (tmp_path / "file").exists()
    assert fetch(Remote("file", f"{server}/file", MD5), tmp_path).read_bytes() == CONTENT
    assert Handler.asked == [None, "bytes=4000-"]


def test_of_two_processes_one_downloads_and_the_other_waits(server: str, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    remote = Remote("file", f"{server}/slow", MD5)
    processes = [context.Process(target=fetch, args=(remote, tmp_path)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert Handler.asked == [None]


def test_of_what_dead_processes_have_left_the_most_is_carried_on(server: str, tmp_path: Path) -> None:
    (tmp_path / "file.1.writing").write_bytes(CONTENT[:5000])
    (tmp_path / "file.2.writing").write_bytes(CONTENT[:300])
    (tmp_path / "file.notes.writing").write_bytes(b"of the user")
    assert fetch(Remote("file", f"{server}/file", MD5), tmp_path).read_bytes() == CONTENT
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "file.notes.writing"]
    assert Handler.asked == ["bytes=5000-"]


def test_a_server_without_ranges_starts_over(server: str, tmp_path: Path) -> None:
    (tmp_path / "file.1.writing").write_bytes(b"old")
    assert fetch(Remote("file", f"{server}/plain", MD5), tmp_path).read_bytes() == CONTENT


def test_a_whole_part_needs_its_checksum_only(server: str, tmp_path: Path) -> None:
    (tmp_path / "file.1.writing").write_bytes(CONTENT)
    assert fetch(Remote("file", f"{server}/file", MD5), tmp_path).read_bytes() == CONTENT


def test_a_wrong_checksum_leaves_nothing(server: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"has checksum {MD5}, not 0+; it was removed"):
        fetch(Remote("file", f"{server}/file", "0" * 32), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("address", "message"),
    [("/missing", "could not be downloaded .Not Found"), ("", "could not be downloaded .*refused")],
)
def test_what_cannot_be_fetched_is_said_in_one_line(server: str, address: str, message: str, tmp_path: Path) -> None:
    url = f"{server}{address}" if address else "http://127.0.0.1:9/file"
    with pytest.raises(DataError, match=message):
        fetch(Remote("file", url, MD5), tmp_path)
    assert not list(tmp_path.iterdir())
