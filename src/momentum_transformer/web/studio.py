"""Where models work: one worker thread, a small slice of work at a time, viewers in turn.

A viewer has one request at a time, and a request waits for one slice before it asks for the next. The worker serves
slices in the order they were asked for, so viewers alternate however many models each of them watches.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event as Flag

from .jobs import Event, Job, draw, translate
from .messages import DrawRequest, TranslateRequest
from .models import Drawable, Translating

CAPACITY = 8  # viewers at a time
SLICE_SECONDS = 0.03


class BusyError(Exception):
    """No place is free; the text is for the viewer."""


class Studio:
    def __init__(
        self,
        models: Sequence[Drawable] = (),
        translators: Sequence[Translating] = (),
        *,
        capacity: int = CAPACITY,
        slice_seconds: float = SLICE_SECONDS,
    ) -> None:
        self.models = models
        self.translators = translators
        self._capacity = capacity
        self._slice_seconds = slice_seconds
        self._places: dict[str, asyncio.Future[str]] = {}
        self._closed = False
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="models")

    @contextmanager
    def admit(self, viewer: str) -> Iterator[asyncio.Future[str]]:
        """A place for one request; the future tells why it has to end early."""
        if self._closed:
            raise BusyError("the server stops")
        if viewer in self._places:
            _end(self._places.pop(viewer), "a newer request of this page took its place")
        elif len(self._places) >= self._capacity:
            raise BusyError(f"busy: {self._capacity} viewers are being served already; try again in a moment")
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._places[viewer] = ended
        try:
            yield ended
        finally:
            if self._places.get(viewer) is ended:
                del self._places[viewer]

    async def events(self, request: DrawRequest | TranslateRequest) -> AsyncGenerator[Event]:
        """What every model makes, slice by slice in turn; ends when all are done."""
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

    def _jobs(self, request: DrawRequest | TranslateRequest, left: Flag) -> list[Job]:
        """`left` is set when nobody waits for them any more."""
        if isinstance(request, DrawRequest):
            models = [(number, self.models[number]) for number in request.models]
            seconds = self._slice_seconds
            return [
                Job(number, model.name, draw(model, request, seconds=seconds, is_stopped=left.is_set))
                for number, model in models
            ]
        translators = [(number, self.translators[number]) for number in request.models]
        return [Job(number, translator.name, translate(translator, request)) for number, translator in translators]

    def close(self) -> None:
        """End every request and take no more."""
        self._closed = True
        for ended in self._places.values():
            _end(ended, "the server stops")
        self._worker.shutdown(wait=False, cancel_futures=True)


def _end(place: asyncio.Future[str], reason: str) -> None:
    if not place.done():
        place.set_result(reason)
