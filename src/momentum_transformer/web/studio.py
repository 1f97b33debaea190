"""Where models work: one worker thread, a small slice of work at a time, viewers in turn.

A viewer has one request at a time, and a request waits for one slice before it asks for the next. The worker serves
slices in the order they were asked for, so viewers alternate however many models each of them watches. Some viewers
are served at the same time; the others stand in a queue and hear how many are before them. Clients take turns in it:
next is who comes from where the fewest are served or stand before, so that nobody waits for the requests of one. Where
the queue is full, who has the most places in it makes room for who has fewer.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event as Flag

from ..errors import UserError
from .clients import LOCAL
from .jobs import Event, Job, draw, translate, write
from .messages import DrawRequest, Request, TranslateRequest
from .page_models import Drawable, Translating, Writing

CAPACITY = 8  # viewers served at a time
WAITING = 300  # viewers in the queue, who cost a connection and their request each
SHARE = 4  # no client but this machine has more than one in SHARE of the places in the queue
SLICE_SECONDS = 0.03


class BusyError(UserError):
    """No place is free, not even in the queue; the text is for the viewer."""


class Place:
    """Where one request stands among those that are served or wait."""

    def __init__(self, client: str, *, is_served: bool) -> None:
        self.client = client
        self.is_served = is_served
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()  # why it has to end early
        self.before = 0  # how many must leave first
        self.moved = asyncio.Event()

    def move(self, before: int) -> None:
        if before != self.before:
            self.before = before
            self.moved.set()

    def end(self, reason: str) -> None:
        if not self.ended.done():
            self.ended.set_result(reason)


class Studio:
    def __init__(
        self,
        models: Sequence[Drawable] = (),
        translators: Sequence[Translating] = (),
        writers: Sequence[Writing] = (),
        *,
        capacity: int = CAPACITY,
        waiting: int = WAITING,
        slice_seconds: float = SLICE_SECONDS,
    ) -> None:
        self.models = models
        self.translators = translators
        self.writers = writers
        self._capacity = capacity
        self._waiting = waiting
        self._slice_seconds = slice_seconds
        self._places: dict[str, Place] = {}  # in the order of their coming
        self._closed = False
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="models")

    @contextmanager
    def admit(self, viewer: str, client: str = LOCAL) -> Iterator[Place]:
        """A place for one request. A newer request of the same viewer takes the place of the older one."""
        if self._closed:
            raise BusyError("the server stops")
        older = self._places.get(viewer)
        if older is None:
            self._find_room(client)
        else:
            older.end("a newer request of this page took its place")
        place = self._places[viewer] = Place(client, is_served=older is not None and older.is_served)
        self._move_up()
        try:
            yield place
        finally:
            if self._places.get(viewer) is place:
                del self._places[viewer]
                self._move_up()

    def _find_room(self, client: str) -> None:
        """Refuse a client that has its share of the queue; in a full one, who has the most places makes room.

        This machine does not: behind a proxy it stands for everybody.
        """
        standing = Counter(place.client for place in self._places.values() if not place.is_served)
        share = max(1, self._waiting // SHARE)
        if client != LOCAL and standing[client] >= share:
            raise BusyError(f"busy: {share} requests of your address are waiting already; try again in a moment")
        if len(self._places) < self._capacity + self._waiting:
            return
        most = max((other for other in standing if other != LOCAL), key=standing.__getitem__, default=client)
        if standing[client] + 1 >= standing[most]:
            raise BusyError(f"busy: {self._waiting} viewers are waiting already; try again in a moment")
        *_, last = (name for name, place in self._places.items() if place.client == most and not place.is_served)
        self._places.pop(last).end("your address had the most places in a full queue; try again in a moment")

    def _move_up(self) -> None:
        """Serve the next ones where places are free, and tell the others how many are before them."""
        served = Counter(place.client for place in self._places.values() if place.is_served)
        free = self._capacity - served.total()
        turns: list[tuple[int, Place]] = []
        for place in self._places.values():
            if not place.is_served:
                turns.append((served[place.client], place))
                served[place.client] += 1
        turns.sort(key=lambda turn: turn[0])  # among equals, who came first
        for number, (_, place) in enumerate(turns, start=1):
            place.is_served = number <= free
            place.move(max(0, number - free))

    async def events(self, request: Request, place: Place) -> AsyncGenerator[Event]:
        """The places in the queue, then what every model makes, slice by slice in turn; ends when all are done."""
        while place.before:
            place.moved.clear()
            yield {"waiting": place.before}
            await place.moved.wait()
        loop = asyncio.get_running_loop()
        left = Flag()
        jobs = self._jobs(request, left)
        try:
            while any(not job.done for job in jobs):
                for job in jobs:
                    if not job.done:
                        yield await loop.run_in_executor(self._worker, job.advance)
        finally:
            left.set()

    def _jobs(self, request: Request, left: Flag) -> list[Job]:
        """`left` is set when nobody waits for them any more."""
        seconds, is_stopped = self._slice_seconds, left.is_set
        if isinstance(request, DrawRequest):
            models = [(number, self.models[number]) for number in request.models]
            return [
                Job(number, model.name, draw(model, request, seconds=seconds, is_stopped=is_stopped))
                for number, model in models
            ]
        if isinstance(request, TranslateRequest):
            translators = [(number, self.translators[number]) for number in request.models]
            return [Job(number, translator.name, translate(translator, request)) for number, translator in translators]
        writers = [(number, self.writers[number]) for number in request.models]
        return [
            Job(number, writer.name, write(writer, request, seconds=seconds, is_stopped=is_stopped))
            for number, writer in writers
        ]

    def close(self) -> None:
        """End every request and take no more."""
        self._closed = True
        for place in self._places.values():
            place.end("the server stops")
        self._worker.shutdown(wait=False, cancel_futures=True)
