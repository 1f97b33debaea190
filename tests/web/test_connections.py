"""Silent and half-open connections, many clients, and the token of a page that others can reach."""

import http.client
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest
from starlette.testclient import TestClient

from momentum_transformer.web import connections, guard
from momentum_transformer.web.app import create_app
from momentum_transformer.web.server import address, new_token, open_socket
from momentum_transformer.web.studio import Studio

from .fake import FakeModel, serving

POST = b"POST /draw HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
KINDS = {"silent": b"", "half a head": b"GET / HTTP/1.1\r\nHost: local", "half a body": POST}


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Of a server that has no patience."""
    monkeypatch.setattr(connections, "ASKING_SECONDS", 0.3)
    with serving(Studio([FakeModel()])) as port:
        yield port


def status(port: int) -> int:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        connection.request("GET", "/models")
        return connection.getresponse().status


def is_closed(connection: socket.socket) -> bool:
    connection.settimeout(20)
    try:
        while connection.recv(4096):
            pass
    except ConnectionResetError:
        return True
    return True


@pytest.mark.parametrize("kind", KINDS)
def test_a_connection_that_does_not_ask_is_closed(kind: str, port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as held:
        held.sendall(KINDS[kind])
        assert is_closed(held)
    assert status(port) == 200


def test_a_second_request_has_a_deadline_too(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as held:
        held.sendall(b"GET /models HTTP/1.1\r\nHost: localhost\r\n\r\nGET /models HTTP/1.1\r\nHost: lo")
        assert held.recv(4096).startswith(b"HTTP/1.1 200")
        assert is_closed(held)


def test_where_there_is_no_room_the_oldest_that_asks_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS", 5)
    with serving(Studio([FakeModel()])) as port, ExitStack() as stack:
        held = [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20)) for _ in range(12)]
        assert status(port) == 200
        assert all(is_closed(one) for one in held[:6])


def test_many_that_ask_must_be_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "ASKING_PER_CLIENT", 3)
    monkeypatch.setattr(connections, "ASKING_SECONDS", 600.0)
    monkeypatch.setattr(connections, "QUICK_SECONDS", 0.2)
    with serving(Studio([FakeModel()])) as port, ExitStack() as stack:
        held = [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20)) for _ in range(9)]
        assert all(is_closed(one) for one in held[3:])
        held[0].sendall(b"GET /models HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert held[0].recv(4096).startswith(b"HTTP/1.1 200")


def test_one_client_has_a_share_of_the_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "REQUESTS_PER_CLIENT", 0)
    with TestClient(create_app(Studio([FakeModel()])), base_url="http://localhost") as client:
        refused = client.get("/models")
    assert refused.status_code == 503
    assert "of your address" in refused.text


def test_half_a_request_takes_no_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "REQUESTS_PER_CLIENT", 3)
    with serving(Studio([FakeModel()])) as port, ExitStack() as stack:
        for _ in range(9):
            held = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
            held.sendall(KINDS["half a body"])
        assert status(port) == 200


def test_only_who_has_the_link_comes_in() -> None:
    app = create_app(Studio([FakeModel()]), token="a-secret")
    with TestClient(app, base_url="http://localhost") as stranger:
        for path in (
            "/",
            "/models",
            "/style.css",
            "/?token=",
            "/?token=a-secre",
            "/models?token=a-secret",
            f"/?{'a=1&' * 9}",
        ):
            refused = stranger.get(path, follow_redirects=False)
            assert refused.status_code == 401
            assert "the whole link" in refused.text
        assert stranger.get("/", headers={"cookie": "momentum-token=wrong; x"}).status_code == 401
    with TestClient(app, base_url="http://localhost") as guest:
        entered = guest.get("/?token=a-secret", follow_redirects=False)
        assert (entered.status_code, entered.headers["location"]) == (303, "/")
        assert all(word in entered.headers["set-cookie"] for word in ("HttpOnly", "SameSite=strict"))
        assert guest.get("/").status_code == 200
        assert guest.get("/models").status_code == 200


def test_the_local_address_needs_no_token() -> None:
    with open_socket("127.0.0.1", 0) as here, open_socket("0.0.0.0", 0) as everywhere:
        assert new_token(here) is None
        token = new_token(everywhere)
        assert token is not None
        assert len(token) >= 20
        assert new_token(everywhere) != token
        assert address(everywhere, token).endswith(f"/?token={token}")
        assert "token" not in address(here)
