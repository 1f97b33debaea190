"""One model at work for one viewer, a slice at a time. A slice ends with an event: what the viewer hears of it."""

import logging
import time
from collections.abc import Callable, Iterator
from difflib import SequenceMatcher
from typing import Any

from .messages import DrawRequest, TranslateRequest, WriteRequest, finite
from .page_models import Drawable, RefusedError, Translating, Writing

LOG = logging.getLogger(__name__)
Event = dict[str, Any]


class Job:
    """`advance` runs in the worker thread, everything else in the event loop."""

    def __init__(self, number: int, name: str, events: Iterator[Event]) -> None:
        self.done = False
        self._number = number
        self._name = name
        self._events = events

    def advance(self) -> Event:
        """The next slice; what goes wrong in it is an event, too, and the last one."""
        try:
            event = next(self._events)
        except RefusedError as error:
            event = {"error": str(error), "done": True}
        except Exception as error:
            LOG.exception("%s cannot go on", self._name)
            reason = f"{self._name} failed ({type(error).__name__}); the server's terminal says more"
            event = {"error": reason, "done": True}
        self.done = event["done"]
        return {"model": self._number, **event}


def draw(model: Drawable, request: DrawRequest, *, seconds: float, is_stopped: Callable[[], bool]) -> Iterator[Event]:
    """Slices of drawing, each about `seconds` long and at least one byte, unless the viewer leaves."""
    given_bits = None
    if request.given:
        given_bits = finite(model.given_bits(request.given) / len(request.given))
    steps = model.draw(request.given, temperature=request.temperature, seed=request.seed)
    left, drawn, bits, busy = model.picture.size - len(request.given), 0, 0.0, 0.0
    while left:
        values = bytearray()
        state_bytes = 0
        end = time.perf_counter() + seconds
        while left and not is_stopped() and not (values and time.perf_counter() >= end):
            step = next(steps)
            values.append(step.value)
            state_bytes = step.state_bytes
            # the first byte waits for the given ones to be read, which is not drawing
            busy += step.seconds if drawn else 0.0
            drawn += 1
            left -= 1
            bits += step.bits
        yield {
            "values": list(values),
            "values_per_second": finite((drawn - 1) / busy) if busy else None,
            "state_bytes": state_bytes,
            "given_bits_per_dim": given_bits,
            "drawn_bits_per_dim": finite(bits / drawn) if drawn else None,
            "done": left == 0,
        }


def translate(model: Translating, request: TranslateRequest) -> Iterator[Event]:
    """Slices of one step: the first draft, then each refinement; then only that it is done."""
    steps = model.translate(request.text, refinements=request.refinements, until_fixed=request.until_fixed)
    before: tuple[str, ...] | None = None
    busy = 0.0
    for number, draft in enumerate(steps):
        busy += draft.seconds
        yield {
            "step": number,
            "words": draft.words,
            "changed": [] if before is None else changed_words(before, draft.words),
            "is_same": draft.words == before,
            "tokens_per_second": finite(draft.tokens / busy) if busy else None,
            "done": False,
        }
        before = draft.words
    yield {"done": True}


def write(model: Writing, request: WriteRequest, *, seconds: float, is_stopped: Callable[[], bool]) -> Iterator[Event]:
    """Slices of writing, each about `seconds` long and at least one token, unless the viewer leaves."""
    steps = model.write(request.prompt, tokens=request.tokens, temperature=request.temperature, seed=request.seed)
    written, busy = 0, 0.0
    while written < request.tokens:
        parts: list[str] = []
        states: list[int] = []
        end = time.perf_counter() + seconds
        while written < request.tokens and not is_stopped() and not (parts and time.perf_counter() >= end):
            step = next(steps)
            parts.append(step.text)
            states.append(step.state_bytes)
            # the first token waits for the prompt to be read, which is not writing
            busy += step.seconds if written else 0.0
            written += 1
        yield {
            "text": "".join(parts),
            "tokens": written,
            "tokens_per_second": finite((written - 1) / busy) if busy else None,
            "states": states,
            "done": written == request.tokens,
        }


def changed_words(before: tuple[str, ...], words: tuple[str, ...]) -> list[int]:
    """Places of the words that differ from the step before, where the two sentences are aligned."""
    same = SequenceMatcher(None, before, words, autojunk=False).get_matching_blocks()
    kept = {place for block in same for place in range(block.b, block.b + block.size)}
    return [place for place in range(len(words)) if place not in kept]
