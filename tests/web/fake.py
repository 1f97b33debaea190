"""A model whose pictures are known beforehand, and a server to show it."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from momentum_transformer.web.models import Picture, Step
from momentum_transformer.web.server import Server, open_socket
from momentum_transformer.web.studio import Studio

SMALL = Picture(4, 4, 1)


@dataclass
class FakeModel:
    """Draws `position + seed`, at 2 bits a byte; the given ones cost 1 bit each."""

    name: str = "fake"
    subject: str = "ramps"
    picture: Picture = SMALL
    momentum: tuple[float, float] | None = None
    shown: Sequence[bytes] = ()
    bits: float = 2.0
    pause: float = 0.0  # seconds a byte
    fail_at: int | None = None
    log: list[str] = field(default_factory=list)  # the name, once a byte

    def examples(self) -> Sequence[bytes]:
        return self.shown

    def given_bits(self, given: bytes) -> float:
        return 1.0 * len(given)

    def draw(self, given: bytes, *, temperature: float, seed: int) -> Iterator[Step]:
        for position in range(len(given), self.picture.size):
            if position == self.fail_at:
                raise ValueError("made to fail")
            time.sleep(self.pause)
            self.log.append(self.name)
            yield Step((position + seed) % 256, self.bits, 100 * (position + 1), self.pause or 1e-6)


def ask(**changes: object) -> dict[str, object]:
    """A good request, with fields changed."""
    return {"viewer": "viewer-one", "models": [0], "given": [], "temperature": 1.0, "seed": 0, **changes}


@contextmanager
def serving(studio: Studio) -> Iterator[int]:
    """The real server in a thread; its port."""
    listening = open_socket("127.0.0.1", 0)
    port: int = listening.getsockname()[1]
    server = Server(studio)
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        yield port
    finally:
        server.should_exit = True
        thread.join(10)
        assert not thread.is_alive(), "the server does not stop"


def still(model: FakeModel) -> bool:
    """Whether the model has stopped drawing, waited for up to 10 s."""
    for _ in range(200):
        before = len(model.log)
        time.sleep(0.05)
        if len(model.log) == before:
            return True
    return False
