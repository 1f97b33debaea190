"""What a viewer may ask for: every field checked and bounded before anything is done with it."""

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..bounded import parse_json
from ..errors import UserError
from .page_models import Drawable, Translating, Writing

MAX_BYTES = 65_536  # of a message
MAX_MODELS = 8  # in one request
TEMPERATURES = (0.1, 2.0)
MAX_SEED = 2**31 - 1
MAX_CHARACTERS = 1_000  # of a text
MAX_REFINEMENTS = 20
MAX_TOKENS = 1_000  # to write
DRAW_FIELDS = ("viewer", "models", "given", "temperature", "seed")
TRANSLATE_FIELDS = ("viewer", "models", "text", "refinements", "until_fixed")
WRITE_FIELDS = ("viewer", "models", "prompt", "tokens", "temperature", "seed")
VIEWER = re.compile(r"[A-Za-z0-9-]{8,64}")


class BadRequestError(UserError):
    """A message that cannot be answered; the text is for the viewer."""


@dataclass(frozen=True)
class DrawRequest:
    """A picture to be completed by several models."""

    viewer: str  # chosen by the page at random; nobody has two requests at a time
    models: tuple[int, ...]  # positions in the list the page was given
    given: bytes
    temperature: float
    seed: int


@dataclass(frozen=True)
class TranslateRequest:
    """A text to be translated by several models."""

    viewer: str
    models: tuple[int, ...]
    text: str
    refinements: int  # at most
    until_fixed: bool


@dataclass(frozen=True)
class WriteRequest:
    """A text to be continued by several models."""

    viewer: str
    models: tuple[int, ...]
    prompt: str
    tokens: int
    temperature: float
    seed: int


Request = DrawRequest | TranslateRequest | WriteRequest


def parse_draw_request(message: bytes, models: Sequence[Drawable]) -> DrawRequest:
    """The request in a JSON message."""
    content = _content(message, DRAW_FIELDS)
    chosen = _models(content["models"], len(models))
    if len({(models[number].subject, models[number].picture) for number in chosen}) > 1:
        raise BadRequestError("models must all draw the same kind of picture")
    return DrawRequest(
        viewer=_viewer(content["viewer"]),
        models=chosen,
        given=_given(content["given"], models[chosen[0]].picture.size),
        temperature=_temperature(content["temperature"]),
        seed=_integer("seed", content["seed"], MAX_SEED),
    )


def parse_translate_request(message: bytes, translators: Sequence[Translating]) -> TranslateRequest:
    """The request in a JSON message."""
    content = _content(message, TRANSLATE_FIELDS)
    chosen = _models(content["models"], len(translators))
    if len({translators[number].languages for number in chosen}) > 1:
        raise BadRequestError("models must all translate between the same languages")
    if not isinstance(content["until_fixed"], bool):
        raise BadRequestError(f"until_fixed must be true or false, not {_shown(content['until_fixed'])}")
    return TranslateRequest(
        viewer=_viewer(content["viewer"]),
        models=chosen,
        text=_text(content["text"]),
        refinements=_integer("refinements", content["refinements"], MAX_REFINEMENTS),
        until_fixed=content["until_fixed"],
    )


def parse_write_request(message: bytes, writers: Sequence[Writing]) -> WriteRequest:
    """The request in a JSON message."""
    content = _content(message, WRITE_FIELDS)
    prompt = _characters("prompt", content["prompt"])
    if not prompt:
        raise BadRequestError("there is nothing to continue: write a word or two first")
    return WriteRequest(
        viewer=_viewer(content["viewer"]),
        models=_models(content["models"], len(writers)),
        prompt=prompt,
        tokens=_integer("tokens", content["tokens"], MAX_TOKENS, least=1),
        temperature=_temperature(content["temperature"]),
        seed=_integer("seed", content["seed"], MAX_SEED),
    )


def _content(message: bytes, fields: tuple[str, ...]) -> dict[str, Any]:
    try:
        content = parse_json(message)
    except UnicodeEncodeError as error:
        raise BadRequestError(f"{error.object[error.start]!r} is half a character; remove it") from None
    except ValueError:
        raise BadRequestError("the message is not JSON") from None
    if not isinstance(content, dict) or sorted(content) != sorted(fields):
        raise BadRequestError(f"the message must be an object with exactly these fields: {', '.join(fields)}")
    return content


def _viewer(value: Any) -> str:
    if not isinstance(value, str) or not VIEWER.fullmatch(value):
        raise BadRequestError(f"viewer must be 8 to 64 letters, digits or hyphens, not {_shown(value)}")
    return value


def _models(value: Any, count: int) -> tuple[int, ...]:
    if not count:
        raise BadRequestError("there is no such model here")
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_MODELS:
        raise BadRequestError(f"models must be a list of 1 to {MAX_MODELS} numbers, not {_shown(value)}")
    for number in value:
        if not _is_integer(number, 0, count - 1):
            raise BadRequestError(f"models must be numbers from 0 to {count - 1}, not {_shown(number)}")
    if len(set(value)) < len(value):
        raise BadRequestError("models must not name one twice")
    return tuple(value)


def _given(value: Any, size: int) -> bytes:
    if not isinstance(value, list) or len(value) >= size:
        raise BadRequestError(f"given must be a list of at most {size - 1} bytes: one must be left to draw")
    for number in value:
        if not _is_integer(number, 0, 255):
            raise BadRequestError(f"given must hold whole numbers from 0 to 255, not {_shown(number)}")
    return bytes(value)


def _temperature(value: Any) -> float:
    low, high = TEMPERATURES
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise BadRequestError(f"temperature must be a number from {low} to {high}, not {_shown(value)}")
    return float(value)


def _text(value: Any) -> str:
    """One line, whatever white space it came with."""
    line = " ".join(_characters("text", value).split())
    if not line:
        raise BadRequestError("there is nothing to translate")
    return line


def _characters(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise BadRequestError(f"{name} must be a text, not {_shown(value)}")
    if len(value) > MAX_CHARACTERS:
        raise BadRequestError(f"the {name} must have at most {MAX_CHARACTERS} characters, not {len(value)}")
    return value


def _integer(name: str, value: Any, most: int, *, least: int = 0) -> int:
    if not _is_integer(value, least, most):
        raise BadRequestError(f"{name} must be a whole number from {least} to {most}, not {_shown(value)}")
    return int(value)


def _is_integer(value: Any, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _shown(value: Any) -> str:
    """What was given, short enough for a message."""
    if isinstance(value, list | dict):
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value)}"
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def finite(value: float) -> float | None:
    """JSON has no infinity and no NaN; a whole number may be too large for either."""
    return value if abs(value) <= sys.float_info.max else None
