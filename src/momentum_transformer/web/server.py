"""The server itself: a socket of its own, and an end that keeps nobody waiting."""

import ipaddress
import logging
import secrets
import socket
from contextlib import suppress

import uvicorn

from . import ServeError
from .app import create_app
from .connections import CONNECTIONS, Connection
from .guard import TOKEN
from .studio import Studio
from .training_view import Watch

CLOSING_SECONDS = 3


def open_socket(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any that is free."""
    if not 0 <= port <= 65_535:
        raise ServeError(f"--port must be from 0 to 65535, not {port}")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError):
        raise ServeError(f"--host {host!r} is not an address or name of this machine") from None
    family, kind, protocol, _, address = found[0]
    listening = socket.socket(family, kind, protocol)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(address)
        listening.listen(CONNECTIONS)
    except OSError as error:
        listening.close()
        raise ServeError(f"cannot serve on {host} port {port}: {error.strerror}; try another --port") from None
    return listening


def is_private(listening: socket.socket) -> bool:
    """Whether only this machine can reach the socket."""
    return ipaddress.ip_address(listening.getsockname()[0]).is_loopback


def new_token(listening: socket.socket) -> str | None:
    """What a link must hold where others can reach the socket."""
    return None if is_private(listening) else secrets.token_urlsafe(16)


def address(listening: socket.socket, token: str | None = None) -> str:
    """What to type into a browser."""
    host, port = listening.getsockname()[:2]
    found = ipaddress.ip_address(host)
    name = socket.gethostname() if found.is_unspecified else f"[{host}]" if found.version == 6 else host
    return f"http://{name}:{port}/" + ("" if token is None else f"?{TOKEN}={token}")


class Server(uvicorn.Server):
    """Serves the page on a socket until it is told to stop; open answers end with it."""

    def __init__(
        self,
        studio: Studio,
        watch: Watch | None = None,
        *,
        host_names: tuple[str, ...] = (),
        token: str | None = None,
    ) -> None:
        self._studio = studio
        super().__init__(
            uvicorn.Config(
                create_app(studio, watch, host_names=host_names, token=token),
                http=Connection,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=CLOSING_SECONDS,
            )
        )
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # noise of clients is no news

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._studio.close()
        await super().shutdown(sockets)


def serve(studio: Studio, watch: Watch, listening: socket.socket, *, host: str, token: str | None = None) -> None:
    """Serve until Ctrl-C; `host` is what the socket was opened for."""
    with suppress(KeyboardInterrupt):
        Server(studio, watch, host_names=(host, socket.gethostname()), token=token).run([listening])
