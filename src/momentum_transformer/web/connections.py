"""Connections that ask for nothing are closed, so that they keep nobody out.

A connection asks until a whole request has come, head and body, however slowly. Asking has a deadline, which is short
for a client that has many connections that ask; and where there is no room for one more, the one that has asked for
longest is closed, of the client that has most. Who has asked is served, and is never closed to make room.
"""

import asyncio
from collections import Counter
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

CONNECTIONS = 640  # of all clients: viewers who are served or wait, and some that ask
ASKING_PER_CLIENT = 32  # that have time; further ones must be quick
ASKING_SECONDS, QUICK_SECONDS = 10.0, 1.0


class Connection(H11Protocol):
    """A connection with a deadline for its requests."""

    asking_since: float | None = None  # None: a request is under way
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._ask()
        if len(self.connections) > CONNECTIONS:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body:
            self._stop_asking()

    def on_response_complete(self) -> None:
        self._ask()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_asking()
        super().connection_lost(exc)

    def _ask(self) -> None:
        self._stop_asking()
        self.asking_since = self.loop.time()
        many = Counter(other.address for other in self._asking())[self.address] > ASKING_PER_CLIENT
        self._deadline = self.loop.call_later(QUICK_SECONDS if many else ASKING_SECONDS, self.transport.abort)

    def _stop_asking(self) -> None:
        self.asking_since = None
        if self._deadline is not None:
            self._deadline.cancel()

    def _asking(self) -> list["Connection"]:
        everyone: Any = self.connections
        return [other for other in everyone if other.asking_since is not None and not other.transport.is_closing()]

    def _make_room(self) -> None:
        asking = self._asking()
        ((most, _),) = Counter(other.address for other in asking).most_common(1)
        first = min((other for other in asking if other.address == most), key=lambda other: other.asking_since or 0.0)
        first.transport.abort()

    @property
    def address(self) -> str:
        return self.client[0] if self.client else ""
