"""Models whose pictures, translations and texts are known beforehand, and a server to show them."""

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from threading import Semaphore

from momentum_transformer.web.page_models import Draft, Example, Picture, RefusedError, Step, Written
from momentum_transformer.web.server import Server, open_socket
from momentum_transformer.web.studio import Studio
from momentum_transformer.web.training_view import Watch

SMALL = Picture(4, 4, 1)


@dataclass
class Fake:
    """What works in steps: slowly where asked for, and so that a test can tell when it has ended."""

    name: str = "fake"
    _: KW_ONLY
    note: str = ""
    pause: float = 0.0  # seconds after a step
    fail_at: int | None = None
    log: list[str] = field(default_factory=list)  # the name, once a step
    ends: Semaphore = field(default_factory=lambda: Semaphore(0))  # released when a piece of work is done or given up

    def steps(self, numbers: Iterable[int]) -> Iterator[int]:
        try:
            for number in numbers:
                if number == self.fail_at:
                    raise ValueError("made to fail")
                self.log.append(self.name)
                yield number
                time.sleep(self.pause)
        finally:
            self.ends.release()

    def has_ended(self) -> bool:
        """Whether a piece of work ends within a minute."""
        return self.ends.acquire(timeout=60)


@dataclass
class FakeModel(Fake):
    """Draws `position + seed`, at 2 bits a byte; the given ones cost 1 bit each."""

    subject: str = "ramps"
    picture: Picture = SMALL
    momentum: tuple[float, float] | None = None
    shown: Sequence[bytes] = ()
    bits: float = 2.0

    def examples(self) -> Sequence[bytes]:
        return self.shown

    def given_bits(self, given: bytes) -> float:
        return 1.0 * len(given)

    def draw(self, given: bytes, *, temperature: float, seed: int) -> Iterator[Step]:
        for position in self.steps(range(len(given), self.picture.size)):
            yield Step((position + seed) % 256, self.bits, 100 * (position + 1), self.pause or 1e-6)


@dataclass
class FakeTranslator(Fake):
    """Drafts the words in lower case; refinement n writes word n in capitals, and there is nothing more to do."""

    languages: tuple[str, str] = ("en", "de")
    refinements: int | None = 2
    shown: Sequence[Example] = ()
    refuses: str | None = None

    def examples(self) -> Sequence[Example]:
        return self.shown

    def translate(self, text: str, *, refinements: int, until_fixed: bool) -> Iterator[Draft]:
        if self.refuses and self.refuses in text:
            raise RefusedError(f"{self.refuses!r} is refused")
        before: tuple[str, ...] | None = None
        for step in self.steps(range(1 if self.refinements is None else refinements + 1)):
            words = tuple(word.upper() if i < step else word.lower() for i, word in enumerate(text.split()))
            yield Draft(words, 2 * len(words), self.pause or 1e-3)
            if until_fixed and words == before:
                return
            before = words


@dataclass
class FakeWriter(Fake):
    """Writes the numbers from 1, one a token; its state is flat, or grows with every token."""

    prompt: str = "Count:"
    grows: bool = False
    begins_again_at: int | None = None  # the token at which a growing state is small again
    refuses: str | None = None

    def write(self, prompt: str, *, tokens: int, temperature: float, seed: int) -> Iterator[Written]:
        if self.refuses and self.refuses in prompt:
            raise RefusedError(f"{self.refuses!r} is refused")
        for number in self.steps(range(1, tokens + 1)):
            held = number % (self.begins_again_at or tokens + 1) if self.grows else 1
            yield Written(f" {number + seed}", 1000 * held, self.pause or 1e-3)


def ask_text(**changes: object) -> dict[str, object]:
    """A good request for a text, with fields changed."""
    good = {"viewer": "viewer-one", "models": [0], "prompt": "Count:", "tokens": 5, "temperature": 1.0, "seed": 0}
    return {**good, **changes}


def ask(**changes: object) -> dict[str, object]:
    """A good request, with fields changed."""
    return {"viewer": "viewer-one", "models": [0], "given": [], "temperature": 1.0, "seed": 0, **changes}


def ask_translation(**changes: object) -> dict[str, object]:
    """A good request for a translation, with fields changed."""
    good = {"viewer": "viewer-one", "models": [0], "text": "A dog runs", "refinements": 2, "until_fixed": False}
    return {**good, **changes}


@contextmanager
def serving(studio: Studio, watch: Watch | None = None) -> Iterator[int]:
    """The real server in a thread; its port."""
    listening = open_socket("127.0.0.1", 0)
    port: int = listening.getsockname()[1]
    server = Server(studio, watch)
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        yield port
    finally:
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive(), "the server does not stop"
