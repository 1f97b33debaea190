"""The real server: closed tabs, stalled messages, busy ports, Ctrl-C."""

import http.client
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest

from momentum_transformer.web import ServeError
from momentum_transformer.web.page_models import Picture
from momentum_transformer.web.server import address, is_private, open_socket
from momentum_transformer.web.studio import Studio

from .fake import FakeModel, ask, serving

ENDLESS = Picture(1000, 1000, 1)


@contextmanager
def drawing(port: int, **changes: object) -> Iterator[http.client.HTTPResponse]:
    """The answer to a request, as soon as it begins; the connection closes at the end of the block."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        connection.request("POST", "/draw", json.dumps(ask(**changes)), {"content-type": "application/json"})
        with connection.getresponse() as answer:
            yield answer


def test_lines_arrive_while_the_drawing_goes_on_and_a_closed_tab_ends_it() -> None:
    model = FakeModel(picture=ENDLESS, pause=0.001)
    with serving(Studio([model])) as port:
        with drawing(port) as answer:
            assert json.loads(answer.readline())["values"][0] == 0
        assert model.has_ended()
        assert 0 < len(model.log) < ENDLESS.size


def test_a_newer_drawing_of_the_same_viewer_ends_the_older_one() -> None:
    model = FakeModel(picture=ENDLESS, pause=0.001)
    with serving(Studio([model, FakeModel()])) as port, drawing(port) as older:
        older.readline()
        with drawing(port, models=[1]) as newer:
            assert json.loads(newer.readlines()[-1])["done"]
        assert json.loads(older.readlines()[-1]) == {"stopped": "a newer request of this page took its place"}
        assert model.has_ended()


def test_who_comes_to_a_full_studio_waits_and_who_finds_the_queue_full_hears_that_it_is_busy() -> None:
    studio = Studio([FakeModel(picture=ENDLESS, pause=0.001)], capacity=1, waiting=1)
    with serving(studio) as port, drawing(port, viewer="viewer-two") as first:
        first.readline()
        with drawing(port, viewer="viewer-six") as waiting:
            assert json.loads(waiting.readline()) == {"waiting": 1}
            with drawing(port, viewer="viewer-ten") as refused:
                assert refused.status == 503
                assert json.loads(refused.read())["error"].startswith("busy: 1 viewers are waiting already")


def test_two_hundred_connections_wait_in_the_queue_and_are_served() -> None:
    slow, quick = FakeModel(picture=ENDLESS, pause=0.001), FakeModel()
    with serving(Studio([slow, quick], capacity=1)) as port, ExitStack() as stack:
        first = stack.enter_context(drawing(port))
        first.readline()
        waiting = []
        for number in range(200):
            answer = stack.enter_context(drawing(port, viewer=f"waiting-{number}", models=[1]))
            assert json.loads(answer.readline()) == {"waiting": number + 1}
            waiting.append(answer)
        with drawing(port, models=[1]) as newer:  # the first viewer is content with less
            newer.read()
        for answer in waiting:
            assert json.loads(answer.readlines()[-1])["done"]


def test_the_server_answers_while_a_model_works_and_stops_while_it_works() -> None:
    model = FakeModel(picture=ENDLESS, pause=0.001)
    with ExitStack() as stack:
        with serving(Studio([model])) as port:
            answer = stack.enter_context(drawing(port))
            answer.readline()
            with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
                connection.request("GET", "/models")
                assert connection.getresponse().status == 200
        assert json.loads(answer.readlines()[-1]) == {"stopped": "the server stops"}
    assert model.has_ended()


def test_a_viewer_that_reads_nothing_does_not_hold_the_others_up() -> None:
    models = [FakeModel(picture=ENDLESS), FakeModel()]
    with serving(Studio(models)) as port, drawing(port), drawing(port, viewer="viewer-two", models=[1]) as quick:
        assert json.loads(quick.readlines()[-1])["done"]


@pytest.mark.parametrize(
    "message",
    [
        b"\x00\xff\x00\xff\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST /draw HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 999\r\n\r\n{",
        b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    ],
    ids=["noise", "no host", "cut off", "long path", "web socket"],
)
def test_bytes_that_are_no_request_do_not_hurt_the_server(message: bytes) -> None:
    with serving(Studio([FakeModel()])) as port:
        # the server may hang up before it has heard all
        with socket.create_connection(("127.0.0.1", port), timeout=20) as raw, suppress(OSError):
            raw.sendall(message)
            raw.shutdown(socket.SHUT_WR)
        with drawing(port) as answer:
            assert answer.status == 200


def test_a_busy_port_is_said_in_one_line() -> None:
    with open_socket("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(ServeError, match=f"cannot serve on 127.0.0.1 port {port}: Address already in use"):
            open_socket("127.0.0.1", port)


@pytest.mark.parametrize(
    ("host", "port", "message"),
    [
        ("127.0.0.1", 70_000, "--port must be from 0 to 65535, not 70000"),
        ("no such host", 0, "--host 'no such host' is not an address"),
        ("", 0, "--host '' is not an address"),
        ("192.0.2.1", 0, "cannot serve on 192.0.2.1 port 0: Cannot assign requested address"),
    ],
)
def test_an_impossible_address_is_said_in_one_line(host: str, port: int, message: str) -> None:
    with pytest.raises(ServeError) as refused:
        open_socket(host, port)
    assert str(refused.value).startswith(message)


def test_only_the_loopback_is_private() -> None:
    with open_socket("127.0.0.1", 0) as here, open_socket("0.0.0.0", 0) as everywhere:
        assert is_private(here)
        assert not is_private(everywhere)
        assert address(here) == f"http://127.0.0.1:{here.getsockname()[1]}/"
        assert socket.gethostname() in address(everywhere)


PROGRAM = """
from momentum_transformer.web.server import open_socket, serve
from momentum_transformer.web.studio import Studio
from momentum_transformer.web.training_view import Watch
from tests.web.fake import FakeModel
from tests.web.test_server import ENDLESS
listening = open_socket("127.0.0.1", 0)
print(listening.getsockname()[1], flush=True)
serve(Studio([FakeModel(picture=ENDLESS, pause=0.001)]), Watch([]), listening, host="127.0.0.1")
print("stopped", flush=True)
"""


def test_ctrl_c_stops_cleanly_in_the_middle_of_a_drawing() -> None:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], 60)[0]
        with drawing(int(process.stdout.readline())) as answer:
            answer.readline()
            process.send_signal(signal.SIGINT)
            out, error = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (process.returncode, out, error) == (0, "stopped\n", "")
