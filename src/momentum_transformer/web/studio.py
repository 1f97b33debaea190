"""Where drawings are made: one worker thread, a small slice of work at a time, viewers in turn.

A viewer has one drawing at a time, and a drawing waits for one slice before it asks for the next. The worker serves
slices in the order they were asked for, so viewers alternate however many models each of them watches.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from .messages import DrawRequest, finite
from .models import Drawable, Step

LOG = logging.getLogger(__name__)
CAPACITY = 8  # drawings at a time
SLICE_SECONDS = 0.03


class BusyError(Exception):
    """No place is free; the text is for the viewer."""


class Job:
    """One model at work on one picture. `advance` runs in the worker thread, everything else in the event loop."""

    def __init__(self, number: int, model: Drawable, request: DrawRequest) -> None:
        self.number = number
        self.done = False
        self.stopped = False
        self._model = model
        self._request = request
        self._steps: Iterator[Step] | None = None
        self._given_bits: float | None = None
        self._left = model.picture.size - len(request.given)
        self._drawn = 0
        self._bits = 0.0
        self._seconds = 0.0

    def advance(self, seconds: float) -> dict[str, Any]:
        """Draw for about so long, one byte at least; what the viewer needs to know of it."""
        values = bytearray()
        try:
            state_bytes = self._draw(values, seconds)
        except Exception as error:
            LOG.exception("%s cannot draw", self._model.name)
            self.done = True
            reason = f"{self._model.name} failed ({type(error).__name__}); the server's terminal says more"
            return {"model": self.number, "error": reason}
        self.done = self._left == 0
        return {
            "model": self.number,
            "values": list(values),
            "values_per_second": finite((self._drawn - 1) / self._seconds) if self._seconds else None,
            "state_bytes": state_bytes,
            "given_bits_per_dim": self._given_bits,
            "drawn_bits_per_dim": finite(self._bits / self._drawn) if self._drawn else None,
            "done": self.done,
        }

    def _draw(self, values: bytearray, seconds: float) -> int:
        request = self._request
        state_bytes = 0
        if self._steps is None:
            if request.given:
                self._given_bits = finite(self._model.given_bits(request.given) / len(request.given))
            self._steps = self._model.draw(request.given, temperature=request.temperature, seed=request.seed)
        end = time.perf_counter() + seconds
        while self._left and not self.stopped:
            if values and time.perf_counter() >= end:
                break
            step = next(self._steps)
            values.append(step.value)
            state_bytes = step.state_bytes
            # the first byte waits for the given ones to be read, which is not drawing
            self._seconds += step.seconds if self._drawn else 0.0
            self._drawn += 1
            self._left -= 1
            self._bits += step.bits
        return state_bytes


class Studio:
    def __init__(
        self, models: Sequence[Drawable], *, capacity: int = CAPACITY, slice_seconds: float = SLICE_SECONDS
    ) -> None:
        self.models = models
        self._capacity = capacity
        self._slice_seconds = slice_seconds
        self._places: dict[str, asyncio.Future[str]] = {}
        self._closed = False
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="drawing")

    @contextmanager
    def admit(self, viewer: str) -> Iterator[asyncio.Future[str]]:
        """A place for one drawing; the future tells why it has to end early."""
        if self._closed:
            raise BusyError("the server stops")
        if viewer in self._places:
            _end(self._places.pop(viewer), "a newer drawing of this page took its place")
        elif len(self._places) >= self._capacity:
            raise BusyError(f"busy: {self._capacity} drawings are being made already; try again in a moment")
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._places[viewer] = ended
        try:
            yield ended
        finally:
            if self._places.get(viewer) is ended:
                del self._places[viewer]

    async def events(self, request: DrawRequest) -> AsyncGenerator[dict[str, Any]]:
        """What every model draws, slice by slice in turn; ends when all are done."""
        loop = asyncio.get_running_loop()
        jobs = [Job(number, self.models[number], request) for number in request.models]
        try:
            while any(not job.done for job in jobs):
                for job in jobs:
                    if not job.done:
                        yield await loop.run_in_executor(self._worker, job.advance, self._slice_seconds)
        finally:
            for job in jobs:
                job.stopped = True

    def close(self) -> None:
        """End every drawing and take no more."""
        self._closed = True
        for ended in self._places.values():
            _end(ended, "the server stops")
        self._worker.shutdown(wait=False, cancel_futures=True)


def _end(place: asyncio.Future[str], reason: str) -> None:
    if not place.done():
        place.set_result(reason)
